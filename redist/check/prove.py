from redist.plan.certificate import Certificate
def certify(plan): return Certificate("unknown","",0,"","",reason="not yet")
