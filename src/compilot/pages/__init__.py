"""Pages: the ledger in a browser of this user, on this machine. In: nothing. Out: a small web server over loopback.

door.py      who may come in: loopback, the token in the address, reading only; what browsers must not do
site.py      one function for each address
listing.py   runs and what is asked of them -> the rows of the first page
trend.py     the runs of one model -> pictures over time
following.py the journal of a run that is under way -> what is new
drawing.py   templates and styles, which are files of this room and of report/: nothing is built or fetched
serving.py   the server: starts, says its address, ends
Every page works without scripts; one small script shows a run that is under way. Nothing here changes a run. Needs
starlette and uvicorn (the extra `ui`); a missing one is one sentence. Not covered: a team's store (ledger/sharing.py).
"""
