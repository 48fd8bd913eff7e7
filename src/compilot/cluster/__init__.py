"""Cluster: one run's candidates on the machines of a Ray cluster. In: a workload, jobs. Out: trials, as a Runner gives.

`nodes` has the cluster's machines and their workers, `runner` the Runner over them (`compilot.fleet.RayRunner`),
`node_work` what a worker does on its machine, `moving` and `code` bring files there and back by digest, `alike` says
whether two machines may share a model's candidates. Ray places the workers and carries small messages; who may time
when is the host's lease (trials/lease.py). Importing this room imports no Ray.
"""
