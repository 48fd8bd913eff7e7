"""The Python functions: what each command does, as a function that returns a record. One small file per subject.

`compilot` itself has their names (`compilot.tune`); commands of groups are in the modules beside this package
(`compilot.store`, `compilot.cache`, `compilot.keys`). All are light to import: what is heavy loads when it is used.
"""
