import socket,struct,subprocess,time,re,shutil,threading
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_wait'; shutil.rmtree(D,ignore_errors=True)
PRE=b'\x89XUID\r\n\x1a'
def fr(op,rid,body=b''): return struct.pack('<IBBHQ',len(body),op,0,0,rid)+body
HELLO=fr(1,1,struct.pack('<HHI',1,1,0)+bytes(16)+b'\0'+b'\x01x')
p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D,'--wait','30s'],stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,text=True)
port=int(re.findall(r'127.0.0.1:(\d+)',p.stdout.readline())[0])
g=socket.create_connection(('127.0.0.1',port)); g.sendall(PRE+HELLO+b''.join(fr(0x12,j,struct.pack('<IIBxxx',131072,60000,1)) for j in range(900)))
def drain():
    try:
        while g.recv(1<<20): pass
    except OSError: pass
threading.Thread(target=drain,daemon=True).start()
time.sleep(1)
s=socket.create_connection(('127.0.0.1',port)); s.sendall(PRE+HELLO); s.recv(4096); s.settimeout(40)
t=time.time(); s.sendall(fr(0x10,5,b'\1')); d=s.recv(4096); print('NEXT fresh answered after %.1f s, status %04x'%(time.time()-t,struct.unpack_from('<H',d,6)[0]))
t=time.time(); s.sendall(fr(2,6,b'x')); s.recv(4096); print('PING after %.4f s'%(time.time()-t))
p.kill()
