"""Linear models on global arrays: the names, parameters and coefficients of ``sklearn.linear_model``.

In an SPMD program::

    from redist.learn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.5, solver="newton-cholesky").fit(x, y)     # global arrays, or NumPy's
    model.predict_proba(x)                                                    # global, cut as x
"""

from redist.learn.linear_model.logistic import LogisticRegression

__all__ = ["LogisticRegression"]
