import socket,struct,subprocess,time,re,os,shutil,sys,resource
resource.setrlimit(resource.RLIMIT_NOFILE,(8192,8192))
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_mem'; shutil.rmtree(D,ignore_errors=True)
p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D,'--threads','2','--floor','epoch','--max-age','100h','--backfill','50h'],stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,text=True)
l=p.stdout.readline(); a=re.findall(r'127.0.0.1:(\d+)',l); port=int(a[0])
PRE=b'\x89XUID\r\n\x1a'
def fr(op,rid,body=b''): return struct.pack('<IBBHQ',len(body),op,0,0,rid)+body
HELLO=fr(1,1,struct.pack('<HHI',1,1,0)+bytes(16)+b'\0'+b'\x01x')
def rss():
    s=open('/proc/%d/status'%p.pid).read(); return int(re.search(r'VmRSS:\s+(\d+)',s).group(1)),int(re.search(r'RssAnon:\s+(\d+)',s).group(1))
def rd(s,n):
    b=b''
    while len(b)<n:
        d=s.recv(n-len(b)); 
        if not d: raise EOFError
        b+=d
    return b
def reply(s):
    n,op,fl,st,rid=struct.unpack('<IBBHQ',rd(s,16)); return op,st,rd(s,n)
cs=[]
for i in range(1000):
    s=socket.create_connection(('127.0.0.1',port)); s.sendall(PRE+HELLO); reply(s); cs.append(s)
time.sleep(1); print('1000 idle',rss())
def burst(name,reqs,n):
    for s in cs:
        s.sendall(reqs)
    mx=0
    for s in cs:
        for _ in range(n):
            op,st,b=reply(s)
            if op==0x92 and not st: mx=max(mx,struct.unpack_from('<I',b,4)[0])
    time.sleep(3); print(name,rss(),'most runs',mx)
burst('NEXT x500',b''.join(fr(0x10,j) for j in range(500)),500)
burst('RUNS 100k',b''.join(fr(0x12,j,struct.pack('<IIBxxx',100000,5000,0)) for j in range(3)),3)
burst('RUNS fresh waits',b''.join(fr(0x12,j,struct.pack('<IIBxxx',2000,5000,1)) for j in range(20)),20)
burst('ARRAY 20k',b''.join(fr(0x11,j,struct.pack('<IIBxxx',20000,5000,0)) for j in range(2)),2)
for s in cs: s.sendall(fr(0x10,5)[:-1]+b'') 
time.sleep(2); print('half frames',rss())
p.kill()
