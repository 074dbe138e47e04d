"""The connection to one of the servers, for threads (:mod:`.threads`) and for tasks (:mod:`.tasks`), and the choice of the
server (:mod:`.fleet`)."""
