import socket,struct,subprocess,time,re,shutil,select,threading,random,os,signal
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_idle'; shutil.rmtree(D,ignore_errors=True)
PRE=b'\x89XUID\r\n\x1a'
def fr(op,rid,body=b''): return struct.pack('<IBBHQ',len(body),op,0,0,rid)+body
HELLO=fr(1,1,struct.pack('<HHI',1,1,0)+bytes(16)+b'\0'+b'\x01x')
GO=struct.pack('<IBBHQ',0,0x7e,0,0,0)
p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D,'--threads','2','--idle','1s'],stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,text=True)
port=int(re.findall(r'127.0.0.1:(\d+)',p.stdout.readline())[0])
res={}; L=threading.Lock()
def one(seed,lo,hi,split=False):
    R=random.Random(seed)
    s=socket.create_connection(('127.0.0.1',port)); s.setsockopt(6,1,1); s.sendall(PRE+HELLO)
    time.sleep(.2); s.recv(4096)
    t=R.uniform(lo,hi); time.sleep(t)
    s.setblocking(False)
    try: d=s.recv(4096)
    except BlockingIOError: d=None
    s.setblocking(True); s.settimeout(10)
    f=fr(0x10,42)
    try:
        if split: s.sendall(f[:7]); time.sleep(.05); s.sendall(f[7:])
        else: s.sendall(f)
    except OSError: pass
    b=b''
    try:
        while True:
            x=s.recv(4096)
            if not x: break
            b+=x
            if struct.pack('<Q',42) in b: break
    except OSError as e: b+=b'' 
    ans=struct.pack('<Q',42) in b
    k=('goaway known' if d else 'not known', 'answered' if ans else 'LOST')
    with L: res[k]=res.get(k,0)+1
def run(name,n,lo,hi,split=False,stop=None):
    res.clear(); ts=[threading.Thread(target=one,args=(i,lo,hi,split)) for i in range(n)]
    [t.start() for t in ts]
    if stop: time.sleep(stop[0]); os.kill(p.pid,signal.SIGSTOP); time.sleep(stop[1]); os.kill(p.pid,signal.SIGCONT)
    [t.join() for t in ts]; print(name,dict(res))
run('around the idle end',300,.75,1.1)
run('around the idle end, frames in two writes',300,.75,1.1,True)
run('server stopped 0.3..3.3 s, requests lie in the socket',200,.4,2.5,False,(.3,3))
run('same, in two writes',200,.4,2.5,True,(.3,3))
p.kill()
