exec(open('/tmp/wt/adv_mem.py').read().split("burst('NEXT")[0])
def serial(name,conns,req,per):
    mx=0
    for s in conns:
        for _ in range(per):
            s.sendall(req); op,st,b=reply(s)
            if op==0x92 and not st: mx=max(mx,struct.unpack_from('<I',b,4)[0])
    time.sleep(3); print(name,rss(),'most runs',mx)
R=fr(0x12,7,struct.pack('<IIBxxx',100000,5000,0))
# control: one connection asks for as much
serial('1 connection x 1000',cs[:1],R,1000)
serial('1 connection x 1000',cs[:1],R,1000)
serial('1000 connections x 1',cs,R,1)
serial('1000 connections x 1',cs,R,1)
for s in cs: s.close()
time.sleep(3); print('all closed',rss())
cs=[]
for i in range(1000):
    s=socket.create_connection(('127.0.0.1',port)); s.sendall(PRE+HELLO); reply(s); cs.append(s)
time.sleep(2); print('1000 new ones',rss())
p.kill()
