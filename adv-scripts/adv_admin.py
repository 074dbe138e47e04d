# admin under a mixed crowd: half-closed, reset, pipelined, huge heads; does /livez and /readyz still answer, and fds come back?
import socket,struct,subprocess,time,re,shutil,os
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_adm'; shutil.rmtree(D,ignore_errors=True)
p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D],stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,text=True)
a=re.findall(r'127.0.0.1:(\d+)',p.stdout.readline()); port,admin=int(a[0]),int(a[1])
fds=lambda: len(os.listdir('/proc/%d/fd'%p.pid))
def talk(b,shut=True,rst=False,read=True):
    s=socket.create_connection(('127.0.0.1',admin)); s.settimeout(8); s.sendall(b)
    if shut: s.shutdown(1)
    if rst: s.setsockopt(socket.SOL_SOCKET,socket.SO_LINGER,struct.pack('ii',1,0)); s.close(); return b''
    out=b''
    try:
        while read:
            d=s.recv(65536)
            if not d: break
            out+=d
    except OSError as e: out+=repr(e).encode()
    s.close(); return out
f0=fds()
G=lambda path,v='1.1': ('GET %s HTTP/%s\r\nHost: x\r\n\r\n'%(path,v)).encode()
for path in ('/','/livez','/readyz','/metrics','/none'):
    for v in ('1.0','1.1'):
        bad=sum(not talk(G(path,v)).startswith(b'HTTP/') for _ in range(50)); print(path,v,'half-closed, unanswered',bad)
r=talk(G('/metrics')*200); print('200 pipelined metrics, half-closed:',r.count(b'HTTP/1.1 200'))
r=talk(b'HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n'); print('HEAD',r[:15])
r=talk(b'GET /livez HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n'); print('expect',r[:40])
r=talk(b'GET / HTTP/1.1\r\n'+b'a: '+b'b'*500000+b'\r\n\r\n'); print('long head',r[:40])
for _ in range(100): talk(G('/metrics'),rst=True,shut=False)
time.sleep(3); print('descriptors',f0,fds())
r=talk(G('/readyz')); print(r[:15])
p.kill()
