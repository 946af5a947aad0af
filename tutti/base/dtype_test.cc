// dtype
