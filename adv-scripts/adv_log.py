# can a client make the server's log lines long, many, or forged? HELLO names at debug; and what a rogue peer causes at info
import socket,struct,subprocess,time,re,shutil
X='/tmp/wt/advb_xuid'; D='/tmp/wt/advb_log'; shutil.rmtree(D,ignore_errors=True)
PRE=b'\x89XUID\r\n\x1a'
def fr(op,rid,body=b''): return struct.pack('<IBBHQ',len(body),op,0,0,rid)+body
def hello(name): return fr(1,1,struct.pack('<HHI',1,1,0)+bytes(16)+b'\0'+bytes([len(name)])+name)
p=subprocess.Popen([X,'serve','--listen','127.0.0.1:0','--admin','127.0.0.1:0','--data-dir',D,'--log','debug'],stdout=subprocess.PIPE,stderr=open('/tmp/wt/advb_log.txt','wb'),text=True)
port=int(re.findall(r'127.0.0.1:(\d+)',p.stdout.readline())[0])
for n in (b'\x1b[31m\nFORGED ERROR line\r\n\x9b31m',b'\xff\xfe\n','\u202eEVIL\u2028x\u0085y'.encode()):
    s=socket.create_connection(('127.0.0.1',port)); s.sendall(PRE+hello(n)); time.sleep(.2); s.close()
# hostile http heads
time.sleep(.3); p.terminate(); p.wait()
print(open('/tmp/wt/advb_log.txt','rb').read().decode('utf8','replace').encode('unicode_escape').decode().replace('\\n','\n'))
