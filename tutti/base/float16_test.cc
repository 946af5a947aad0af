// float16
