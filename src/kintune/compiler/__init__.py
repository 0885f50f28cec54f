"""The compiler: networks are lowered, programs replayed and built, and networks assembled from them."""
