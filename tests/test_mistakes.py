"""Wrong commands and calls each end in one clear line, never in a traceback or silence."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import clew
import slips_of_memories
from clew import stats
from clew.cli import run
from clew.errors import UserError
from clew.inspect import Questions
from clew.run.build import make_parts
from clew.run.progress import Quiet
from clew.watch import Viewing
from small_run import Watch, train_tiny

KEY = jax.random.key(0)
POLE = "gymnasium:CartPole-v1"

COMMANDS = {
    # Commands and options.
    "trian": "unknown command 'trian'; did you mean clew train?",
    "evalute good": "did you mean clew evaluate?",
    "help tran": "did you mean clew train",
    "--seeds 3": "unknown option '--seeds'",
    "train good": "unexpected argument 'good': a value follows the name of its option",
    "train -seeds 3": "unknown option",
    "train --xyzzy 4": "unknown option '--xyzzy'. See clew train --help",
    "train --step 100": "did you mean --steps",
    "train --steps": "--steps",
    "train --steps 10 20": "unexpected argument '20': --steps takes one value",
    "train --memory": "--memory needs a value",
    "train --memory --steps 9": "--memory needs a value",
    "train --wrappers.trial-memory False": "takes no value; --wrappers.no-trial-memory is its opp",
    "train --wrappers.keep first": "--wrappers.keep must be one of",
    "train --memory mine.Average": "your own is written mine:Average",
    "train --env gym:CartPole-v1": "did you mean 'gymnasium:CartPole-v1'",
    "train --env popgym-RepeatPreviousHard-v0": "'repeat_previous' with difficulty=hard?",
    "train --env popgym-autoencode": "did you mean 'autoencode'?",
    "train --memory slips_of_envs:nothing": "of Nothing; expected a class",
    "train --memory slips_of_memories:Keyless": "takes no key: it is called with key=",
    "train --memory slips_of_memories:Wide": "the output has shape",
    "train --memory slips_of_memories:Branching": "jnp.where(condition, a, b) in place of if",
    "compare gru lstm": "clew compare --memories gru lstm --env TASK",
    "evaluate good/config.json": "is a file of the run",
    "export --verify runs/good": "good is a run: give the folder or zip of its export",
    "train --env": "--env needs a value",
    "train --algorithm": "--algorithm needs a value",
    "train --resume=": "--resume needs a value",
    "train --memory-options r=1 --memory_options eta=2": "--memory-options is given twice",
    "compare --memories gru --memories=lstm": "--memories is given twice; give all of its",
    "train --preset": "--preset needs a value",
    # Names from other libraries.
    "train --ent-coef 0.01": "unknown option '--ent-coef': clew calls it --a2c.entropy-cost.",
    "train --ent_coef 0.01": "clew calls it --a2c.entropy-cost.",
    "train --ppo.lr 0.01": "unknown option '--ppo.lr': clew calls it --ppo.learning-rate.",
    "train --ppo.batch-size 3": "--ppo.minibatches (how many there are, not their size).",
    "train --vf-coef 0.5": "clew calls it --a2c.value-cost.",
    "train --gae-lambda 0.9": "clew calls it --a2c.lam.",
    "train --learning-rate 1e-3": "clew calls it --a2c.learning-rate.",
    "train --learning_rate 1e-3": "clew calls it --a2c.learning-rate.",
    "train --lr 1e-3": "clew calls it --a2c.learning-rate.",
    "train --total-timesteps 1e6": "clew calls it --steps.",
    "train --total_timesteps 1e6": "clew calls it --steps.",
    "train --n-steps 128": "clew calls it --a2c.rollout-length.",
    "train --num-steps 128": "clew calls it --a2c.rollout-length.",
    "train --n-envs 4": "clew calls it --a2c.num-envs.",
    "train --num-envs 4": "clew calls it --a2c.num-envs.",
    "train --max-grad-norm 1": "clew calls it --a2c.max-grad-norm.",
    "train --gamma 0.9": "clew calls it --a2c.gamma.",
    "train --clip-range 0.2": "clew calls it --ppo.clip-ratio, which a2c does not have. See",
    "train --clip-coef 0.2": "clew calls it --ppo.clip-ratio, which a2c",
    "train --n-epochs 4": "clew calls it --ppo.epochs or --pqn.epochs, which a2c does not",
    "train --batch-size 64": "--a2c.minibatches (how many there are, not their size)",
    "train --norm-reward": "clew calls it --wrappers.normalise-rewards.",
    "train --env-id tmaze": "clew calls it --env.",
    "train --exp-name a": "clew calls it --name.",
    "train --n-timesteps 1e6": "clew calls it --steps.",
    "train --eval-freq 1000": "clew calls it --evaluate-every (environment steps of each seed, not",
    "train --save-freq 1000": "clew calls it --checkpoint-seconds (seconds, not steps).",
    "train --lstm-hidden-size 64": "clew calls it --memory-options (hidden_size=64).",
    "train --track": "clew calls it --loggers (wandb).",
    "train --wandb-project-name a": "clew calls it --wandb.project.",
    "train --wandb-entity a": "clew calls it --wandb.entity.",
    "train --algo ppo": "clew calls it --algorithm.",
    "train --policy MlpPolicy": "clew calls it --memory (the rest of the network is in",
    "train --hidden-size 64": "clew calls it --memory-options (hidden_size=64).",
    "train --total-steps 100": "clew calls it --steps.",
    "train --exploration-final-eps 0.1": "clew calls it --pqn.epsilon-end, which a2c",
    "train --start-e 1": "clew calls it --pqn.epsilon-start, which a2c does not have.",
    "train --target-update-interval 9": "clew calls it --r2d2.target-period (gradient steps, not",
    "evaluate good --n-eval-episodes 9": "clew calls it --episodes.",
    "train --n-eval-episodes 9": "clew calls it --evaluate-episodes.",
    "train --device cuda": "'--device': JAX chooses it, or the environment variable JAX_PLATFORMS",
    "train --patience 3": "'--patience': a callback that returns True ends a run",
    "train --use-sde": "clew calls it --network.noise-steps (how many steps noise is kept;",
    "train --verbose 1": "'--verbose': progress is on standard error",
    "train --train-freq 4": "clew calls it --a2c.rollout-length (steps of every environment",
    "train --algorithm sac --train-freq 4": "clew calls it --sac.rollout-length (",
    "train --activation-fn relu": "clew calls it --network.nonlinearity (relu or elu, between",
    "train --net-arch 64": "clew calls it --network.head-size (one hidden layer of actor",
    "train --n-stack 4": "clew calls it --memory (frame_stack, with frames=4 in memory_options)",
    "train --algorithm ppo --seq-len 8": "clew calls it --ppo.sequence-length.",
    "train --num-layers 2": "clew calls it --memory-options (num_layers=2).",
    "train --progress-bar": "'--progress-bar': progress is on standard error",
    "train --reset-num-timesteps": "clew train --resume (clew.resume_run) continues",
    "train --lambda_ 0.9": "clew calls it --a2c.lam.",
    "train --clip-param 0.2": "clew calls it --ppo.clip-ratio, which a2c does not have",
    "train --algorithm ppo --max-seq-len 8": "clew calls it --ppo.sequence-length.",
    "train --train-batch-size 512": "clew calls it --a2c.rollout-length (steps of each",
    "train --use-lstm": "clew calls it --memory (lstm).",
    "train --lstm-cell-size 64": "clew calls it --memory-options (hidden_size=64).",
    "train --fcnet-hiddens 64": "clew calls it --network.encoder-size (width of the layers",
    "train --num-env-runners 2": "clew calls it --host.processes (with runner=async",
    "train --memory MlpLstmPolicy": "unknown memory 'MlpLstmPolicy': clew calls it lstm",
    "train --memory CnnLstmPolicy": "clew calls it lstm (behind network.encoder=nature)",
    "evaluate good --deterministic": "'--deterministic': clew evaluate, watch, inspect have",
    "evaluate good --total-timesteps 9": "clew calls it steps, which belongs elsewhere",
    f"train --env {POLE} --ent-coef 0.01": "clew calls it --ppo.entropy-cost.",
    f"train --env {POLE} --n-steps 5": "clew calls it --ppo.rollout-length.",
    "train --algorithm ppo --lr 1": "clew calls it --ppo.learning-rate.",
    "train --algorithm ppo --n-steps 3": "clew calls it --ppo.rollout-length",
    "train --algorithm r2d2 --n-steps 3": "clew calls it --r2d2.n-step.",
    "train --algorithm sac --batch-size 3": "clew calls it --sac.batch-size. See",
    "train --algorithm sac --tau 1": "clew calls it --sac.polyak",
    "train --algorithm sac --ent-coef 0.1": "calls it --sac.initial-temperature (SAC learns it",
    "train --algorithm sac --n-epochs 4": "clew calls it --sac.gradient-steps (after every",
    "train --algorithm sac --train-batch-size 4": "clew calls it --sac.batch-size (sequences",
    "train --algorithm sac --target-network-frequency 1": "clew calls it --sac.polyak (the target",
    "train --algorithm sac --gae-lambda 1": "--pqn.lam, which sac does not have. See",
    "train --algorithm r2d2 --tau 1": "clew calls it --r2d2.target-period (gradient steps between",
    "train --algorithm r2d2 --end-e 1": "clew calls it --r2d2.epsilon-base (each environment keeps",
    "train --algorithm r2d2 --lambda_ 1": "clew calls it --r2d2.n-step (returns over this number",
    "train --algorithm pqn --ent-coef 1": "--ppo.entropy-cost, which pqn does not have. See",
    "train --algorithm mine:Learner --ent-coef 1": "--a2c.entropy-cost or --ppo.entropy-cost. See",
    "train --algorithm pqn --target-kl 1": "clew calls it --ppo.target-kl, which pqn does not have",
    # Settings of the algorithm that does not learn.
    "train --ppo.num-envs 4": "--ppo.num-envs would change nothing: tmaze is learned by a2c here",
    "train --ppo.num_envs 8": "--algorithm ppo (in Python algorithm='ppo') would use it",
    "train --algorithm ppo --a2c.gamma 0.9": "--a2c.gamma would change nothing",
    "train --algorithm a2c --ppo.epochs=2": "--ppo.epochs would change nothing",
    f"train --env {POLE} --a2c.gamma 0.9 --ppo.gamma 0.9": "--ppo.gamma would change nothing",
    f"train --env {POLE} --algorithm ppo --a2c.gamma 0.9": "--a2c.gamma would change nothing",
    "train --preset pramanik/arelit --ppo.epochs 2": "--ppo.epochs would change nothing",
    "train --learner-options num_envs=4": "learner_options are for a learner of your own",
    "train --network.encoder-options a=1": "encoder_options are for an encoder of your own",
    # Values.
    "train --steps x": "--steps must be an integer, got 'x'",
    "train --steps 100k": "--steps must be an integer, got '100k'; write 100e3",
    "train --steps 1.5M": "--steps must be an integer, got '1.5M'; write 1.5e6",
    "train --steps 1.5": "--steps must be an integer, got '1.5'",
    "train --steps 1e-3": "--steps must be an integer, got '1e-3'",
    "train --steps 0": "steps must be an integer of at least 1, got 0",
    "train --steps -5": "steps",
    "train --steps 10": "steps must be at least one rollout",
    "train --steps 1e30": "steps",
    "train --seeds 0": "seeds must be an integer of at least 1, got 0",
    "train --seeds -1": "seeds",
    "train --seeds 2.5": "--seeds must be an integer, got '2.5'",
    "train --seeds 1e9": "seeds",
    "train --seed -1": "seed",
    "train --seed 1e20": "seed",
    "train --log-every 0": "log_every must be an integer of at least 1",
    "train --devices -1": "devices",
    "train --devices 1000": "devices",
    "train --device-threads two": "device_threads",
    "train --checkpoint-seconds -1": "checkpoint_seconds",
    "train --checkpoint-seconds nan": "checkpoint_seconds must be a finite number",
    "train --algorithm dqn": "unknown value of algorithm 'dqn'",
    "train --algorithm PPO": "did you mean 'ppo'",
    "train --runner asinc": "did you mean 'async'",
    "train --runner async": "runner async is for Gymnasium environments",
    "train --ray auto": "need runner async",
    "train --name a/b": "name must be a folder name without a path",
    "train --name ..": "name must be a folder name without a path",
    "train --name good": "already has a run",
    "train --run-dir good-file/runs": "good-file",
    "train --cpu-threads 999": "cpu_threads must be between 1 and",
    "train --a2c.num-envs 0": "num_envs must be an integer of at least 1",
    "train --a2c.num-envs 1e12": "num_envs",
    "train --a2c.rollout-length 1e12": "rollout_length must be at most",
    "train --a2c.gamma 1.5": "gamma must be between 0 and 1",
    "train --a2c.gamma nan": "gamma must be a finite number",
    "train --a2c.gamma x": "--a2c.gamma must be a number, got 'x'",
    "train --a2c.lam -0.1": "lam",
    "train --a2c.learning-rate inf": "learning_rate must be a finite number",
    "train --a2c.learning-rate -1": "learning_rate must be a finite number of at least 0, got -1",
    "train --a2c.max-grad-norm 0": "max_grad_norm must be a finite number above 0",
    "train --a2c.adam-eps 0": "adam_eps must be a finite number above 0",
    "train --a2c.adam-b1 1": "adam_b1",
    "train --a2c.loss-over-time summ": "did you mean 'sum'",
    "train --algorithm ppo --ppo.clip-ratio -1": "clip_ratio",
    "train --algorithm ppo --ppo.schedule linea": "did you mean 'linear'",
    "train --algorithm ppo --ppo.minibatches 7": "minibatches",
    "train --algorithm ppo --ppo.sequence-length 7": "sequence_length",
    "train --wandb.mode on": "unknown value of wandb.mode 'on'; did you mean 'online'",
    "train --loggers tensorbord": "unknown logger 'tensorbord'; did you mean 'tensorboard'",
    "train --loggers tensorboard tensorboard": "twice",
    "train --wrappers.frame-skip 0": "frame_skip",
    "train --wrappers.frame-skip 2": "frame_skip",
    "train --wrappers.reward-scale 0": "reward_scale",
    "train --wrappers.keep 99": "keep",
    "train --wrappers.time-limit 0": "time_limit",
    "train --host.processes -1": "processes",
    "train --host.timeout 0": "timeout",
    "train --network.encoder mpl": "did you mean 'mlp'",
    "train --network.encoder impala": "picture",
    "train --network.encoder-size 0": "encoder_size",
    "train --network.projection lin": "did you mean 'linear'",
    "train --network.head-size -1": "head_size",
    "train --network.init ortho": "did you mean 'orthogonal'",
    "train --network.precision float64": "precision",
    "train --network.skip": "skip",
    # Memories and tasks.
    "train --memory lstmm": "did you mean 'lstm'",
    "train --memory LSTM": "did you mean 'lstm'",
    "train --memory nowhere:A": "there is no module nowhere; looked for nowhere.py in",
    "train --memory json:dumps": "json:dumps",
    "train --memory mine.py:A": "the file mine.py is the module mine",
    "train --memory :A": "expected package.module:name",
    "train --memory-options hidden_size": "expected KEY=VALUE, got 'hidden_size'",
    "train --memory-options =3": "expected KEY=VALUE",
    "train --memory-options hidden_size=8 hidden_size=9": "given twice",
    "train --memory-options hidden=3": "unknown option of arelit 'hidden'",
    "train --memory-options num_layer=2": "did you mean 'num_layers'",
    "train --memory-options hidden_size=0": "hidden_size must be an integer of at least 1",
    "train --memory-options hidden_size=x": "hidden_size must be an integer of at least 1, got 'x'",
    "train --memory-options hidden_size=1.5": "hidden_size must be an integer",
    "train --memory-options hidden_size=null": "hidden_size",
    "train --memory-options hidden_size=1000000000000000000000": "hidden_size",
    "train --memory-options hidden_size=3000000000": "hidden_size must be at most",
    "train --memory-options num_layers=0": "num_layers",
    "train --memory-options num_layers=100000": "num_layers must be at most 256",
    "train --memory-options eta=1000000": "num_heads x eta must be at most 1048576, got 4000000",
    "train --memory-options eta=200000 head_size=200000": "{'eta': 200000, 'head_size': 200000}",
    "train --memory-options eta=1000000000": "eta must be at most",
    "train --memory-options r=1000000000": "r must be at most",
    "train --memory-options head_size=200000 eta=200": "of memory, but this machine has",
    "train --memory universal --memory-options max_steps=100000": "max_steps must be at most 256",
    "train --memory transformer --memory-options window=1000000000": "window must be at most",
    "train --a2c.num-envs 1000000000 --steps 1000000000000": "of memory, but this machine has",
    "train --seeds 10000000": "of memory, but this machine has",
    "train --memory-options num_heads=0": "num_heads",
    "train --memory-options eta=0": "eta",
    "train --memory lstm --memory-options backend=gpu": "backend",
    "train --memory gtrxl --memory-options window=0": "window",
    "train --memory gtrxl --memory-options num_heads=7 head_size=3 gating=gr": "gating",
    "train --env tmace": "did you mean 'tmaze'",
    "train --env gymnasium:CartPol-v1": "did you mean Car",
    "train --env gymnasium:": "gymnasium",
    "train --env gymnax:Nothing-v1": "gymnax",
    "train --env nowhere:make": "nowhere",
    "train --env json:dumps": "json:dumps",
    "train --env-options corridor=9": "did you mean 'corridor_length'",
    "train --env-options corridor_length=1": "corridor_length must be an integer of at least 2",
    "train --env-options corridor_length=long": "corridor_length must be an integer",
    "train --env-options corridor_length=99999999999999999999": "corridor_length",
    "train --env-options corridor_length=2000000000": "corridor_length must be at most 16777216",
    "train --env-options time_limit=2000000000": "time_limit must be at most 16777216",
    "train --env memory_chain --env-options memory_length=2000000000": "memory_length must be at",
    "train --env memory_chain --env-options num_bits=1000000000": "num_bits must be at most",
    "train --env memory_chain --env-options stream_seed=0 stream_length=9999999": "stream_length",
    f"train --env {POLE} --env-options gravity=1": "does not take these options",
    f"train --env {POLE} --wrappers.keep 9": "keep",
    f"train --env {POLE} --a2c.whole-episodes": "whole_episodes",
    f"train --env {POLE} --host.processes 3": "processes must divide num_envs",
    "train --algorithm nowhere:A": "there is no module nowhere",
    "train --algorithm json:JSONDecoder": "json:JSONDecoder is not a learner: it lacks config",
    "train --network.encoder nowhere:A": "there is no module nowhere",
    "train --network.encoder json:JSONDecoder": "json:JSONDecoder is not an encoder",
    # Presets and resuming.
    "train --preset pramanik/areli": "did you mean 'pramanik/arelit'",
    "train --preset a --resume b": "give only one of them",
    "train --resume a --name b": "--resume continues a run under its own name: leave out --name",
    "train --trust": "--trust is for the run of --resume or --start-from",
    "train --resume": "--resume needs a value",
    "train --resume nowhere": "unknown run 'nowhere'",
    "train --resume god": "did you mean 'good'",
    "train --resume good --steps 8": "steps can only be raised, got 8",
    "train --resume good --seeds 2": "good was started with seeds = 1, not 2",
    "train --resume good --memory lstm": "good was started with memory",
    "train --resume good --a2c.gamma 0.5": "good was started with a2c.gamma",
    "train --resume broken": "it is not valid JSON",
    "train --resume listed": "it is not a JSON object",
    "train --resume changed": "was changed after it was written",
    # Evaluating, inspecting, exporting, watching.
    "evaluate": "which run?",
    "evaluate nowhere": "unknown run 'nowhere'",
    "evaluate god": "did you mean 'good'",
    "evaluate good other": "unexpected argument 'other'",
    "evaluate good --episodes 0": "episodes must be an integer of at least 1",
    "evaluate good --episodes x": "--episodes must be an integer",
    "evaluate good --seed -1": "seed must be an integer of at least 0",
    "evaluate good --actions both-of": "--actions",
    "evaluate good --greedy": "unknown option '--greedy'",
    "evaluate good --checkpoint 99": "unknown checkpoint '99'",
    "evaluate bare": "has no checkpoint yet",
    "evaluate broken": "it is not valid JSON",
    "evaluate changed": "was changed after it was written",
    "evaluate unknown": "unknown setting 'colour'",
    "evaluate newer": "was written by a newer clew",
    "inspect": "which run?",
    "inspect nowhere": "unknown run 'nowhere'",
    "inspect good --episodes 0": "episodes must be an integer of at least 1",
    "inspect good --share 2": "share must be above 0 and at most 1, got 2.0",
    "inspect good --every -1": "every must be an integer of at least 0, got -1",
    "inspect good --probe colour": "colour",
    "inspect good --reference ones": "--reference",
    "inspect good --seed-index 1": "seed_index must be below the run's number of seeds, 1, got 1",
    "inspect good --checkpoint 99": "unknown checkpoint '99'",
    "inspect good --max-steps 0": "max_steps",
    "inspect good --influence-episodes 0": "influence_episodes",
    "inspect good good --output here": "cannot share an --output",
    "inspect bare": "has no checkpoint yet",
    "export a --verify --seed 3": "leave out all other options",
    "export a --seed -1": "seed must be an integer of at least 0, got -1",
    "export a --control-rate nan": "control_rate must be a finite number above 0, got nan",
    "watch": "which run?",
    "watch nowhere": "unknown run 'nowhere'",
    "watch good --out film.avi": "a video is a .gif or an .mp4 file",
    "watch good --out good-file/a.gif": "cannot write",
    "watch good --fps 0.001": "fps must be between 0.002 and",
    "watch good --fps 60": "fps must be between 0.002 and 50 here, got 60",
    "watch good --fps nan": "fps",
    "watch good --episodes 0": "episodes must be an integer of at least 1",
    "watch good --max-frames 0": "max_frames",
    "watch good --max-steps 0": "max_steps",
    "watch good --influence magic": "--influence",
    "watch good --checkpoint 99": "unknown checkpoint '99'",
    "watch good --seed-index 5": "seed_index must be below",
    "watch good --seed-index -1": "seed_index must be an integer of at least 0",
    "watch bare": "has no checkpoint yet",
    "runs --run-dir nowhere": "no folder nowhere",
    "runs good": "unexpected argument 'good'",
    "runs --run-dir good-file": "good-file",
    "compare": "which runs?",
    "compare nowhere": "unknown run 'nowhere'",
    "compare good --out picture.jpeg": "--out must be a .png, .pdf or .svg file",
    "compare bare": "has no metrics",
    "compare good broken": "has no metrics",
    # Listing, checking, counting.
    "models lstmm": "did you mean 'lstm'",
    "models --options a=1": "--options needs the NAME",
    "models --layout": "--layout needs the NAME",
    "models gru --study makkink": "--study takes no other option than --json: leave out the rest",
    "models --study makkink --input-size 3": "no other option than --json",
    "train --memory gru lstm": "for several, use clew compare --memories gru lstm",
    "compare --memories gru": "give two or more different memories",
    "compare --memories gru gru": "give two or more different memories",
    "compare --memories gru lstmm": "did you mean 'lstm'",
    "compare --memories gru none --memory lstm": "leave out --memory",
    "compare --memories gru none --memory-options heads=2": "unknown option of these memories",
    "compare --memories gru none --ent-coef 0.1": "clew calls it --a2c.entropy-cost.",
    "compare --memories gru none --steps 1": "steps must be at least one rollout",
    "compare --memories gru none --ppo.epochs 3": "--ppo.epochs would change nothing",
    "models gru --options hidden=1": "unknown option of gru 'hidden'",
    "models gru --input-size 0": "input_size must be an integer of at least 1",
    "models --study makink": "did you mean 'makkink'",
    "models nowhere:A": "there is no module nowhere",
    "envs tmace": "did you mean 'tmaze'",
    "envs nowhere:A": "there is no module nowhere",
    "envs --env-options a=1": "which task do the options belong to?",
    "check lstmm": "did you mean 'lstm'",
    "check --options hidden_size=8": "--options needs the NAME",
    "check nowhere:memory": "cannot import 'nowhere'",
    "check json:dump_": "did you mean 'dump'",
    "check builtins:dict": "returned dict, expected an AbstractMemory",
    "check clew.envs:TMaze": "expected an AbstractMemory",
    "check gru --options hidden=1": "unknown option of gru 'hidden'",
    "check gru --options hidden_size=1000000": "of memory, but this machine has",
    "check relit --options eta=100000 head_size=1000 num_heads=1": "memory, but this machine has",
    "check gru --lengths 0": "a length must be an integer of at least 1",
    "check gru --lengths": "the number of lengths must be",
    "check gru --input-size 0": "input_size must be an integer of at least 1",
    "cost --memories gruu": "did you mean 'gru'",
    "cost --batch 0": "batch must be an integer of at least 1",
    "cost --input-size 0": "input_size must be an integer of at least 1",
    "bench --memories lstmm": "did you mean 'lstm'",
    "bench --repeats 0": "repeats must be an integer of at least 1",
    "bench --quick --repeats 9": "--quick sets the repeats itself: leave out --repeats",
    "bench --peers": "--peers",
    "demo --seeds 0": "seeds must be an integer of at least 1",
    "demo --episodes 0": "episodes must be an integer of at least 1",
    # Studies and reports.
    "study nowhere.py": "there is no file nowhere.py",
    "study nowhere:STUDY": "there is no module nowhere",
    "study json:dumps": "unknown name in json 'dumps'",
    "study empty.py": "must have exactly one study at module level, got 0",
    "study makkink --seeds x": "--seeds must be an integer",
    "study makkink --total-timesteps 100": "clew calls it --steps.",
    "report": "which studies?",
    "report nowhere": "nowhere",
    "report good": "good",
}
"""Maps a command line to a part of its error."""


def memory(name: str = "gru", **options: Any) -> clew.AbstractMemory:
    sizes = {"hidden_size": 8} if name != "none" else {}
    return clew.make_memory(name, input_size=3, key=KEY, **sizes | options)


def in_two_types() -> Any:
    """A step of a memory with only its matrices in half precision."""
    own = memory()
    mixed = jax.tree.map(lambda w: w.astype(jnp.bfloat16) if w.ndim > 1 else w, own)
    return mixed.step(own.init_state(), jnp.zeros(3), jnp.array(True))


def step(state: Any = None, x: Any = None, start: Any = None, name: str = "gru") -> Any:
    """A step of a small memory with a mistake."""
    own = memory(name)
    return own.step(
        own.init_state() if state is None else state,
        jnp.zeros(3) if x is None else x,
        jnp.array(True) if start is None else start,
    )


def own_memory(name: str) -> Any:
    return clew.make_memory(vars(slips_of_memories)[name], input_size=3, key=KEY)


def unroll(xs: Any, starts: Any = None, state: Any = None) -> Any:
    own = memory()
    starts = jnp.zeros(4, bool) if starts is None else starts
    return own.unroll(own.init_state() if state is None else state, xs, starts)


def settings(**given: Any) -> clew.TrainConfig:
    return clew.TrainConfig(**given)


def validated(**settings: Any) -> None:
    make_parts(clew.TrainConfig(**settings))


def trained(**settings: Any) -> Any:
    return clew.train(clew.TrainConfig(**settings), progress=Quiet())


def policy(observation: Any, **options: Any) -> Any:
    return clew.load_policy("good")(observation, **options)


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    # Settings.
    "a misspelt setting": (lambda: settings(step=5), "setting 'step'; did you mean 'steps'"),
    "a setting of a group": (
        lambda: settings(learning_rate=1),
        r"belongs to a group of settings: a2c=clew.A2CConfig\(learning_rate=...\) or ppo=",
    ),
    "another library's name of a setting in a group": (
        lambda: clew.PPOConfig(lambda_=0.9),
        "unknown setting of PPOConfig 'lambda_': clew calls it lam$",
    ),
    "another library's name that belongs elsewhere": (
        lambda: clew.PPOConfig(total_timesteps=9),
        "unknown setting of PPOConfig 'total_timesteps': clew calls it steps, which belongs elsew",
    ),
    "another library's name for one learner's setting": (
        lambda: clew.SACConfig(ent_coef=0.1),
        r"setting of SACConfig 'ent_coef': clew calls it initial_temperature \(SAC learns it from",
    ),
    "another library's name for several learners' settings": (
        lambda: settings(ent_coef=0.1),
        r"entropy_cost=...\) or sac=clew.SACConfig\(initial_temperature=...\) \(SAC learns it",
    ),
    "another library's name for the network": (
        lambda: settings(fcnet_hiddens=[64]),
        r"group of settings: network=clew.NetworkConfig\(encoder_size=...\) \(width of the layers",
    ),
    "a2c as a dict": (lambda: clew.TrainConfig(a2c={"num_envs": 4}), r"write clew.A2CConfig"),
    "ppo as a dict": (lambda: clew.TrainConfig(ppo={}), "ppo must be a PPOConfig"),
    "network as a dict": (lambda: clew.TrainConfig(network={}), "must be a NetworkConfig"),
    "network as text": (lambda: clew.TrainConfig(network="mlp"), "must be a NetworkConfig"),
    "wrappers as a dict": (lambda: clew.TrainConfig(wrappers={}), "must be a WrapperConfig"),
    "host as a number": (lambda: clew.TrainConfig(host=3), "host must be a HostConfig"),
    "wandb as a dict": (lambda: clew.TrainConfig(wandb={}), "wandb must be a WandbConfig"),
    "asynchronous as a dict": (lambda: clew.TrainConfig(asynchronous={}), "must be a AsyncConfig"),
    "PPO's settings as A2C's": (lambda: clew.TrainConfig(a2c=clew.PPOConfig()), "an? A2CConfig"),
    "memory_options as a list": (lambda: clew.TrainConfig(memory_options=[]), "must be a dict"),
    "env_options as text": (lambda: clew.TrainConfig(env_options="a=1"), "must be a dict"),
    "memory as a number": (lambda: clew.TrainConfig(memory=3), "memory must be a name"),
    "memory as an instance": (lambda: clew.TrainConfig(memory=memory()), "must be a name"),
    "memory as a lambda": (lambda: clew.TrainConfig(memory=lambda n, key: 0), "must be a name"),
    "env as None": (lambda: clew.TrainConfig(env=None), "must be a name"),
    "env as an instance": (lambda: clew.TrainConfig(env=clew.make_env("tmaze")), "be a name"),
    "algorithm as a number": (lambda: clew.TrainConfig(algorithm=1), "must be a name"),
    "encoder as a number": (lambda: clew.NetworkConfig(encoder=1), "must be a name"),
    "a film's greedy as text": (lambda: Viewing(greedy="no").validate(), "greedy must be True or"),
    "a probe as text": (
        lambda: Questions(probe="cue").validate(),
        "probe must be a tuple, got 'cue",
    ),
    "a share as text": (lambda: Questions(share="x").validate(), "share must be a finite number"),
    "a deviation as text": (
        lambda: validated(network=clew.NetworkConfig(initial_log_std="wide")),
        "initial_log_std must be a finite number, got 'wide'",
    ),
    "steps as text": (lambda: validated(steps="many"), "steps"),
    "steps as a float": (lambda: validated(steps=1e6), "steps must be an integer"),
    "a size of NumPy's": (
        lambda: clew.MEMORIES["gru"](3, key=KEY, hidden_size=np.int64(4)),
        r"Python number: int\(...\), got",
    ),
    "steps as a bool": (lambda: validated(steps=True), "steps must be an integer"),
    "steps as None": (lambda: validated(steps=None), "steps"),
    "no steps": (lambda: validated(steps=0), "steps must be an integer of at least 1"),
    "far too many steps": (lambda: validated(steps=2**70), "steps"),
    "no seeds": (lambda: validated(seeds=0), "seeds must be an integer of at least 1"),
    "seeds as a list": (lambda: validated(seeds=[1, 2]), "seeds must be an integer"),
    "half a seed": (lambda: validated(seeds=0.5), "seeds must be an integer"),
    "seed as text": (lambda: validated(seed="a"), "seed must be an integer"),
    "a huge seed": (lambda: validated(seed=2**70), "seed"),
    "name as a number": (lambda: validated(name=3), "name"),
    "run_dir as a number": (lambda: validated(run_dir=3), "run_dir"),
    "loggers as text": (lambda: validated(loggers="tensorboard"), "loggers"),
    "an unknown logger": (lambda: validated(loggers=("tensorbord",)), "tensorboard"),
    "devices as text": (lambda: validated(devices="two"), "devices"),
    "log_every as a float": (lambda: validated(log_every=2.5), "log_every must be an integer"),
    "checkpoint_seconds as text": (lambda: validated(checkpoint_seconds="1"), "finite number"),
    "an unknown runner": (lambda: validated(runner="both"), "unknown value of runner"),
    "an unknown memory": (lambda: validated(memory="lstmm"), "did you mean 'lstm'"),
    "an unknown option": (lambda: validated(memory_options={"a": 1}), "unknown option of arelit"),
    "an option that the agent sets": (
        lambda: validated(memory_options={"key": 1}),
        "memory_options must leave key to the agent, got 1",
    ),
    "an option called memory": (lambda: validated(memory_options={"memory": 1}), "of arelit 'mem"),
    "an option called name": (lambda: validated(env_options={"name": 1}), "of tmaze 'name'"),
    "an option as an array": (
        lambda: validated(memory_options={"hidden_size": np.zeros(3)}),
        "hidden_size|plain finite values",
    ),
    "an option that is NaN": (
        lambda: validated(env_options={"corridor_length": float("nan")}),
        "plain finite values|corridor_length",
    ),
    "an option's name as a number": (lambda: validated(memory_options={1: 2}), "strings as keys"),
    "an unknown task": (lambda: validated(env="tmace"), "did you mean 'tmaze'"),
    "another library's setting of a group": (
        lambda: clew.PPOConfig(n_steps=128),
        "unknown setting of PPOConfig 'n_steps': clew calls it rollout_length",
    ),
    "another library's setting of a wrapper": (
        lambda: clew.WrapperConfig(norm_obs=True),
        "clew calls it normalise_observations",
    ),
    "a setting of a group that there is not": (
        lambda: clew.PPOConfig(epoch=1),
        "unknown setting of PPOConfig 'epoch'; did you mean 'epochs'",
    ),
    "another library's setting of a run": (
        lambda: clew.TrainConfig(total_timesteps=5),
        "unknown setting 'total_timesteps': clew calls it steps",
    ),
    "another library's setting that is none here": (
        lambda: clew.TrainConfig(device="cuda"),
        "unknown setting 'device': JAX chooses it",
    ),
    "another library's setting of a learner, in a run": (
        lambda: clew.TrainConfig(n_steps=5),
        r"n_steps belongs to a group of settings: a2c=clew.A2CConfig\(rollout_length=...\) or ppo=",
    ),
    "settings of PPO for A2C": (
        lambda: trained(ppo=clew.PPOConfig(num_envs=4), steps=2048),
        "ppo.num_envs would change nothing",
    ),
    "settings of A2C for PPO": (
        lambda: trained(algorithm="ppo", a2c=clew.A2CConfig(lam=0.5), steps=2048),
        "a2c.lam would change nothing",
    ),
    "a rate as text": (lambda: validated(a2c=clew.A2CConfig(learning_rate="1")), "learning_rate"),
    "environments as a float": (lambda: validated(a2c=clew.A2CConfig(num_envs=4.0)), "num_envs"),
    "gamma above 1": (lambda: validated(a2c=clew.A2CConfig(gamma=2)), "between 0 and 1"),
    "a switch as text": (lambda: validated(network=clew.NetworkConfig(skip="no")), "skip"),
    "keep as a number": (lambda: validated(wrappers=clew.WrapperConfig(keep=2)), "keep"),
    # Training, and files of a training.
    "train with a dict": (lambda: clew.train({"steps": 5}), "TrainConfig"),
    "train with a path": (lambda: clew.train("good"), "TrainConfig"),
    "resume True without a run": (lambda: clew.train(resume=True), "which run"),
    "resume nowhere": (lambda: clew.resume_run("nowhere"), "unknown run 'nowhere'"),
    "resume to fewer steps": (
        lambda: clew.resume_run("good", steps=8),
        "can only be raised, got 8",
    ),
    "resume to no steps": (lambda: clew.resume_run("good", steps=0), "steps"),
    "train over a run": (lambda: trained(steps=2048, name="good"), "already has a run"),
    "evaluate nowhere": (lambda: clew.evaluate("nowhere"), "unknown run"),
    "evaluate no episodes": (lambda: clew.evaluate("good", episodes=0), "episodes must be"),
    "evaluate half an episode": (lambda: clew.evaluate("good", episodes=0.5), "episodes must be"),
    "evaluate no steps": (lambda: clew.evaluate("good", max_steps=0), "max_steps must be"),
    "evaluate a config": (lambda: clew.evaluate(clew.TrainConfig()), "path"),
    "load nowhere": (lambda: clew.load("nowhere"), "unknown run"),
    "load another seed": (lambda: clew.load("good", 1), "seed_index must be below"),
    "load seed -1": (lambda: clew.load("good", -1), "seed_index must be an integer of at least 0"),
    "load an unknown checkpoint": (
        lambda: clew.load("good", checkpoint="99"),
        "unknown checkpoint '99'",
    ),
    "load nothing": (lambda: clew.load(None), "path"),
    "a policy of an unknown checkpoint": (
        lambda: clew.load_policy("good", checkpoint="99"),
        "unknown checkpoint '99'",
    ),
    "metrics of nothing": (lambda: clew.read_metrics("nowhere"), "nowhere"),
    "metrics of many runs": (lambda: clew.read_metrics("runs"), "is not a run: it has no metrics"),
    "metrics of None": (lambda: clew.read_metrics(None), "path"),
    # A policy.
    "an observation of another shape": (lambda: policy(np.zeros(3), start=True), "shape"),
    "an observation of another kind": (lambda: policy({"a": 1}, start=True), "observation"),
    "an observation as text": (lambda: policy("left", start=True), "observation is 'left'"),
    "what reset returns": (
        lambda: policy((np.zeros(16), {}), start=True),
        "looks like what reset returns: its first part is the observation",
    ),
    "a policy of a function": (lambda: clew.load_policy(clew.train), "path"),
    # A user's own classes.
    "a memory without a size": (
        lambda: own_memory("Sizeless"),
        "Sizeless raised while it was built: .*abstract attributes .'output_size'",
    ),
    "a field that is not declared": (
        lambda: own_memory("Undeclared"),
        "declares its fields in the class",
    ),
    "an observation that is NaN": (
        lambda: policy(np.full(16, np.nan), start=True),
        "not finite",
    ),
    "an infinite observation": (lambda: policy(np.full(16, np.inf), start=True), "not finite"),
    "no observation": (lambda: policy(None, start=True), "observation"),
    # Memories.
    "make nothing": (lambda: clew.make_memory(None, input_size=3, key=KEY), "memory"),
    "make a task": (lambda: clew.make_memory(clew.ENVS["tmaze"], input_size=3, key=KEY), "memory"),
    "make with an unknown option": (lambda: memory(hidden=3), "unknown option of gru 'hidden'"),
    "make with a huge size": (lambda: memory(hidden_size=2**60), "hidden_size"),
    "make with a number as the key": (
        lambda: clew.make_memory("gru", input_size=3, key=0),
        "key must be a random key",
    ),
    "make with text as the key": (
        lambda: clew.make_memory("gru", input_size=3, key="seed"),
        "key must be a random key",
    ),
    "make with several keys": (
        lambda: clew.make_memory("gru", input_size=3, key=jax.random.split(KEY)),
        "key must be a random key",
    ),
    "a state of another memory": (
        lambda: step(memory("lstm").init_state()),
        r"of shapes .8., got .8., .8.; a state fits only a memory with the same options$",
    ),
    "a state of another size": (
        lambda: step(memory(hidden_size=4).init_state()),
        "got .4.; a state fits only a memory with the same options",
    ),
    "a state for none": (
        lambda: step(memory("lstm").init_state(), name="none"),
        "of shapes none, got .8., .8.; a state fits",
    ),
    "a state with a batch axis": (lambda: step(jnp.zeros((2, 8))), "no batch axis"),
    "no state": (lambda: step({}), "init_state"),
    "a state as text": (lambda: step("fresh"), "init_state"),
    "an empty state": (lambda: step(()), "of shapes .8., got none"),
    "a state in a list": (lambda: step([jnp.zeros(8)]), "in lists instead of tuples"),
    "a state of whole numbers": (
        lambda: step((jnp.zeros(8, int),)),
        "with float32, got int32 instead",
    ),
    "weights of two types": (lambda: in_two_types(), "types, bfloat16 and float32"),
    "a class with an unknown option": (
        lambda: clew.MEMORIES["gru"](3, key=KEY, hiden_size=3),
        "unknown option of GRU 'hiden_size'; did you mean 'hidden_size'",
    ),
    "a window's state in another": (
        lambda: step(memory("gru").init_state(), name="gtrxl"),
        "init_state",
    ),
    "x as text": (lambda: step(x="abc"), "expected x"),
    "a chunk without time": (lambda: unroll(jnp.zeros(3)), "expected"),
    "a chunk from another's state": (
        lambda: unroll(jnp.zeros((4, 3)), state=memory("lstm").init_state()),
        "init_state",
    ),
    "check a class": (lambda: clew.check(clew.MEMORIES["gru"]), "give an instance"),
    "check a name": (lambda: clew.check("gru"), "give an instance"),
    "check one length": (lambda: clew.check(memory(), lengths=7), "lengths"),
    # Tasks.
    "make no task": (lambda: clew.make_env(None), "name"),
    # Statistics.
    "more seeds solve it than there are": (lambda: stats.fisher_test(1, 2, 6, 5), "successes"),
}
"""Maps a mistake to the call and a pattern of its error."""


class Accepted(BaseException):
    """A wrong command or call was about to train."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs: a good one, and damaged ones."""
    place = tmp_path_factory.mktemp("mistakes")
    good = train_tiny(place / "runs", name="good")  # the program of test_cli.py
    text = json.loads((good / "config.json").read_text())
    for name in ("bare", "rows", "broken", "listed", "changed", "unknown", "newer"):
        (place / "runs" / name).mkdir()
    shutil.copy(good / "config.json", place / "runs" / "bare")
    for file in ("config.json", "metrics.jsonl"):
        shutil.copy(good / file, place / "runs" / "rows")
    write = {
        "broken": "{",
        "listed": "[]",
        "changed": json.dumps(text | {"config": text["config"] | {"seed": 7}}),
        "unknown": json.dumps(text | {"config": text["config"] | {"colour": "red"}}),
        "newer": json.dumps(text | {"format": 99}),
    }
    for name, content in write.items():
        (place / "runs" / name / "config.json").write_text(content)
    (place / "good-file").write_text("")
    (place / "empty.py").write_text("STUDY = None\n")
    return place


@pytest.fixture(autouse=True)
def never_trained(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In that folder, with a training that raises, so that no run starts."""

    def train(*args: Any, **options: Any) -> None:
        raise Accepted

    monkeypatch.chdir(folders)
    monkeypatch.setattr("clew.run.train._train", train)
    runs = sorted((folders / "runs").iterdir())
    yield
    assert sorted((folders / "runs").iterdir()) == runs


@pytest.mark.parametrize("line", COMMANDS)
def test_a_wrong_command_is_one_line(line: str, capsys: pytest.CaptureFixture) -> None:
    assert run(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and "Traceback" not in said.err and "nan, not nan" not in said.err
    *notes, wrong = said.err.splitlines()
    assert wrong.startswith("error: ") and COMMANDS[line] in wrong
    assert not any("error" in note for note in notes)


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_call_is_one_line(what: str) -> None:
    call, pattern = CALLS[what]
    with pytest.raises(UserError, match=pattern) as error:
        call()
    assert "\n" not in str(error.value) and "nan, not nan" not in str(error.value)


def test_a_run_without_checkpoints_says_that_it_begins_anew() -> None:
    watch = Watch()
    with pytest.raises(Accepted):
        clew.resume_run("rows", progress=watch)
    assert "it starts anew, without its rows up to update 10" in watch.messages[-1]


def test_runs_are_listed_beside_damaged_ones(folders: Path, capsys: pytest.CaptureFixture) -> None:
    """Each damaged one has a line; a run's progress is counted by its own algorithm."""
    config = json.loads((folders / "runs/good/config.json").read_text())["config"]
    config |= {"algorithm": "ppo", "steps": 100, "memory": "größer:Ä"}
    config["ppo"] |= {"num_envs": 5, "rollout_length": 10}
    ppo = folders / "listed" / "ppo"
    ppo.mkdir(parents=True)
    text = json.dumps({"config": config}, ensure_ascii=False)
    (ppo / "config.json").write_text(text, encoding="utf-8")
    (ppo / "metrics.jsonl").write_text('{"update": 1, "steps": 50}\n')
    for name, content in {
        "cut": "{",
        "list": "[]",
        "empty": "{}",
        "wrong": '{"config": 3}',
    }.items():
        (folders / "listed" / name).mkdir()
        (folders / "listed" / name / "config.json").write_text(content)
    assert run(["runs", "--run-dir", "listed"]) == 0
    said = capsys.readouterr()
    assert "1 run in listed" in said.out and "50%" in said.out and "größer:Ä" in said.out
    assert [line.split(":")[0] for line in said.err.splitlines()] == ["warning"] * 4


def test_there_are_many() -> None:
    assert len(COMMANDS) + len(CALLS) >= 250
