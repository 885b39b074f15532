"""Classifiers with scikit-learn's interface: parameters in, learned attributes out."""
