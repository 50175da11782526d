"""A trained SIB on your own data: a classifier in scikit-learn's style, and `sib predict` for folders of pictures."""
