def page(records): return ""
