"""Feature networks: their pretraining, and the features that they give of image sets."""
