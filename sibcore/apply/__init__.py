"""A trained SIB on data of your own: a scikit-learn classifier, and `sib predict` for folders of pictures."""
