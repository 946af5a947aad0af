"""What a process of tutti.run.launch() runs: python -m tutti._rank FOLDER."""

import json
import os
import pathlib
import pickle
import sys
import time
import traceback


def _dumps(result):
    try:
        import cloudpickle as pickler  # also for classes of a notebook
    except ImportError:
        pickler = pickle
    return pickler.dumps(result)


def main(folder):
    path, call = pickle.loads(pathlib.Path(folder, "call").read_bytes())
    sys.path[:] = path
    try:
        function, args, kwargs = pickle.loads(call)
        result = _dumps(function(*args, **kwargs))
        pathlib.Path(folder, f"result-{os.environ['LOCAL_RANK']}").write_bytes(result)
    except Exception:
        text = traceback.format_exc()
        # In torchrun's form; the report of the job quotes it.
        if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
            error = {"message": text, "extraInfo": {"timestamp": int(time.time())}}
            pathlib.Path(file).write_text(json.dumps({"message": error}))
        sys.stderr.write(text)
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
