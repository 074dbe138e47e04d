# mixed load, then a clean stop: do the figures add up and are they what the clients have?
import socket,struct,subprocess,threading,time,random,re,os,sys,shutil,urllib.request
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_load'; shutil.rmtree(D,ignore_errors=True)
p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D,'--threads',sys.argv[1] if len(sys.argv)>1 else '2','--idle','1s'],stdout=subprocess.PIPE,stderr=open('/tmp/wt/advb_load.log','w'),text=True)
l=p.stdout.readline(); a=re.findall(r'127.0.0.1:(\d+)',l); port,admin=int(a[0]),int(a[1])
PRE=b'\x89XUID\r\n\x1a'
def fr(op,rid,body=b''): return struct.pack('<IBBHQ',len(body),op,0,0,rid)+body
HELLO=fr(1,1,struct.pack('<HHI',1,1,0)+bytes(16)+b'\0'+b'\x01x')
got=[0]; errs={}; lock=threading.Lock(); closed_early=[0]; ids_seen=[]; unread=[0]
stop=threading.Event()
def reader(s,acc,mode):
    buf=b''
    while True:
        try: d=s.recv(1<<16)
        except OSError: return
        if not d: return
        buf+=d
        while len(buf)>=16:
            n,op,fl,st,rid=struct.unpack_from('<IBBHQ',buf)
            if len(buf)<16+n: break
            b=buf[16:16+n]; buf=buf[16+n:]
            if st: acc['err']=acc.get('err',0)+1; continue
            if op==0x90: acc['ids']+=1; acc['l'].append((struct.unpack('<Q',b)[0],1))
            elif op==0x91:
                c=struct.unpack_from('<I',b)[0]; acc['ids']+=c; acc['l']+= [(x,1) for x in struct.unpack_from('<%dQ'%c,b,8)]
            elif op==0x92:
                c,r=struct.unpack_from('<II',b); acc['ids']+=c
                for i in range(r):
                    f,cc,st_=struct.unpack_from('<QII',b,8+16*i); acc['l'].append((f,cc))
def client(seed):
    R=random.Random(seed)
    while not stop.is_set():
        try: s=socket.create_connection(('127.0.0.1',port))
        except OSError: return
        acc={'ids':0,'l':[]}
        t=threading.Thread(target=reader,args=(s,acc,0)); t.start()
        try:
            s.sendall(PRE+HELLO)
            for i in range(R.randrange(1,20)):
                out=b''
                for j in range(R.randrange(1,60)):
                    k=R.random()
                    if k<.5: out+=fr(0x10,j+2)
                    elif k<.6: out+=fr(0x10,j+2,bytes([R.randrange(4)]))
                    elif k<.75: out+=fr(0x11,j+2,struct.pack('<IIBxxx',R.choice([0,1,5,100,3000]),R.choice([0,1,50]),R.randrange(4)))
                    elif k<.95: out+=fr(0x12,j+2,struct.pack('<IIBxxx',R.choice([1,1000,131072,131073]),R.choice([0,1,20]),R.randrange(3)))
                    else: out+=fr(2,j+2,b'hi')
                s.sendall(out)
                time.sleep(R.random()*.02)
            k=R.random()
            if k<.4: s.shutdown(socket.SHUT_WR)
            elif k<.6: s.sendall(fr(0x7f,9999))
            elif k<.8: s.sendall(fr(1,77))   # second HELLO
            else: pass                        # idle end / drain
        except OSError: pass
        t.join()
        s.close()
        with lock: got[0]+=acc['ids']; errs['e']=errs.get('e',0)+acc.get('err',0); ids_seen.extend(acc['l'])
ts=[threading.Thread(target=client,args=(i,)) for i in range(8)]
[t.start() for t in ts]
bad=0
end=time.time()+float(sys.argv[2] if len(sys.argv)>2 else 8)
def num(page,n,lab=''):
    return sum(int(float(x)) for x in re.findall(r'^%s\{?%s[^ ]*\}? (\S+)$'%(n,lab),page,re.M))
while time.time()<end:
    page=urllib.request.urlopen('http://127.0.0.1:%d/metrics'%admin).read().decode()
    m,r=num(page,'xuid_minted_ids_total'),num(page,'xuid_spill_replayed_ids_total')
    i,sp,w,h=num(page,'xuid_issued_ids_total'),num(page,'xuid_spilled_ids_total'),num(page,'xuid_wasted_ids_total'),num(page,'xuid_held_ids')
    sv,rp=num(page,'xuid_served_ids_total'),num(page,'xuid_replied_ids_total')
    if m+r!=i+sp+w+h or sv!=i or m+r<i+sp+w: bad+=1; print('scrape',m,r,i,sp,w,h,sv,rp)
    time.sleep(.05)
p.terminate(); rc=p.wait(); stop.set(); [t.join() for t in ts]
log=open('/tmp/wt/advb_load.log').read(); last=re.sub(r'\x1b\[[0-9;]*m','',log.strip().split('\n')[-1])
f={k:int(v) for k,v in re.findall(r'(\w+)=(\d+)',last)}
print('rc',rc,'bad scrapes',bad,last)
print('clients have',got[0],'issued-1(banner)',f['issued']-1,'refused',errs)
print('sum',f['minted']+f['replayed'],f['issued']+f['spilled']+f['wasted']+f['held'])
ids_seen.sort(); e=0; dup=0
for a,c in ids_seen:
    if a<e: dup+=1
    e=max(e,a+c)
print('spans',len(ids_seen),'overlaps',dup)
