"""Work that takes no time and needs no JAX, for the tests of the study engine."""

import json
import os
import signal
import time
from pathlib import Path

BEGUN = "begun.jsonl"


def pretend(job, progress):
    """Made-up rows, or the fault that the environment variable asks for, after a moment."""
    folder = Path(os.environ["PRETEND_FOLDER"])
    with open(folder / BEGUN, "a") as file:
        file.write(json.dumps([job["model"], job["settings"], job["seeds"]]) + "\n")
    faults = json.loads(os.environ.get("PRETEND_FAULTS", "{}"))
    found = [faults.get(f"{job['model']} {setting}") for setting in job["settings"]]
    fault = next((fault for fault in found if fault), None)
    if fault == "raise":
        raise RuntimeError("nothing works")
    if os.environ.get("PRETEND_SAVED"):
        Path(job["folder"]).mkdir(parents=True, exist_ok=True)
        Path(job["folder"], "update-1.clew").touch()
    progress(0.5)
    time.sleep(float(os.environ.get("PRETEND_SECONDS", "0.01")))
    if fault == "die" or (fault == "die once" and not (folder / "died").exists()):
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "endless" and 0 in job["seeds"]:
        raise ValueError("an episode of seed 0 did not end")
    return [
        {"model": job["model"], "setting": setting, "seed": seed, "digest": digest}
        | {"mean": seed / 10, "score": "return"}
        for setting, digest in zip(job["settings"], job["digests"], strict=True)
        for seed in job["seeds"]
    ]
