"""A check's result in the forms that others read. In: a `CheckReport`. Out: text. Nothing is printed or decided."""
