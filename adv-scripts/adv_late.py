import socket,struct,subprocess,time,re,shutil
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_late'
PRE=b'\x89XUID\r\n\x1a'
def fr(op,rid,body=b''): return struct.pack('<IBBHQ',len(body),op,0,0,rid)+body
HELLO=fr(1,1,struct.pack('<HHI',1,1,0)+bytes(16)+b'\0'+b'\x01x')
for before,rtt in ((0.2,0.1),(0.24,0.02),(0.1,0.1)):
    shutil.rmtree(D,ignore_errors=True)
    p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D,'--threads','2'],stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,text=True)
    l=p.stdout.readline(); port=int(re.findall(r'127.0.0.1:(\d+)',l)[0])
    s=socket.create_connection(('127.0.0.1',port)); s.setsockopt(socket.IPPROTO_TCP,socket.TCP_NODELAY,1); s.sendall(PRE); time.sleep(.1)
    p.terminate(); time.sleep(before); s.sendall(HELLO)
    b=b''
    while len(b)<16 or not b.endswith(struct.pack('<IBBHQ',0,0x7e,0,0,0)): 
        d=s.recv(4096)
        if not d: break
        b+=d
    t=time.time(); goaway=b.endswith(struct.pack('<IBBHQ',0,0x7e,0,0,0))
    time.sleep(rtt)
    try:
        s.sendall(fr(0x10,2)); d=s.recv(4096)
    except OSError as e: d=e
    print('HELLO %.0f ms after the drain began: GOAWAY read %s; NEXT sent %.0f ms after it -> %r'%(before*1e3,goaway,(time.time()-t)*1e3,d))
    p.wait()
