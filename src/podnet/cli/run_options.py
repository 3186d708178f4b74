"""The options of `podnet run` and `podnet search`, as tables: those of the experiment, and those of the call."""

from __future__ import annotations

from typing import Any

from podnet.cli.commands import SWITCH, Flags, Table, add_command, add_options

RUN_HELP = """\
Every hyper-parameter of the method is an option too, for instance --lambda-c 5 or --finetune-epochs 0:
'podnet methods NAME' lists them. All can be set in a YAML file (--config); the command line has priority."""

RUN_EXAMPLES = """\
examples:
  podnet run                                        PODNet on the embedded digits
  podnet run --method icarl --output runs/icarl     another method on the same classes
  podnet run --dataset cifar100 --data-path cifar-100-binary.tar.gz --increment 1
  podnet run --sizes 4,1,3,2 --seeds 1,2,3          uneven tasks, three seeds, and their mean
  podnet run --resume runs/icarl                    continue a stopped run"""

SEARCH_EXAMPLES = """\
examples:
  podnet search --over lr=0.01..0.2 --over lambda_c=1,3,5 --trials 10 --output runs/search
  podnet search --method ucir --over lambda_base=1..20 --trials 20 --base 5 --epochs 10 --output runs/ucir"""

# What determines the results. `const` options are in FLAGS.
EXPERIMENT: Table = (
    ("--method", None, "podnet (default), another of 'podnet methods', or your own: FILE.py:CLASS"),
    ("--dataset", None, "digits (default, embedded), cifar100, imagenet100 ...: 'podnet datasets' lists them"),
    ("--data-path", "PATH", "where the dataset is"),
    ("--classes", "N", "only the first N classes of the order"),
    ("--base", "N", "classes of the first task (default: half of them)"),
    ("--increment", "N", "new classes of each later task (default: 1)"),
    ("--sizes", "N,N,...", "new classes of each task, such as 10,5,5,30; instead of --base, --increment and --classes"),
    ("--visits", "N", "split the images of each class over N tasks: its own and those after it (default: 1)"),
    (
        "--order",
        None,
        "natural, random, paper:0, a list such as 3,1,2 or a file (default: paper:0 if the dataset has it)",
    ),
    ("--memory-per-class", "N", "exemplars kept of each class (default: 20); 0: none, if the method allows it"),
    ("--memory-total", "N", "exemplars kept of all classes together, instead of --memory-per-class"),
    ("--images-per-class", "N", "only the first N training images of each class"),
    ("--validation", "SHARE", "hold out this share of the training images and test on it"),
    ("--recipe", "NAME", "a named set of hyper-parameters, for those not given: fast has fewer epochs in later tasks"),
    ("--epochs", "N", "epochs of the main phase of each task (default: the method's)"),
    ("--step-epochs", "N", "epochs of the tasks after the first (default: the same)"),
    ("--batch-size", "N", "images per update (default: the method's)"),
    ("--backbone", "NAME", "resnet32, resnet18, lite0, lite1, lite2 or timm:NAME (default: the method's)"),
    ("--weights", "FROM", "initial weights: package (lite; its default), hub (timm), a file, or none (default)"),
    ("--freeze", "BOOL", "train the classifier only, not the backbone"),
    ("--input-size", "N", "scale small images to N pixels (default: 128 for pretrained networks, or what they need)"),
    ("--fidelity", None, "released (default) or paper: the authors' code or the paper's text, for podnet"),
    ("--mirror", "BOOL", "whether a mirror image shows the same class (default: true, for digits false)"),
    ("--subset", None, "classes of imagenet100: released (default), ucir or a file with one synset per line"),
    ("--image-size", "N", "side of photo crops (default: 224, tinyimagenet 64); for CIFAR 32, 16 or 8"),
    ("--unreadable", "error|skip", "for photos that cannot be read: stop the run (default) or skip them"),
    ("--workers", "N", "processes that decode photos (default: one per core, at most 8)"),
    ("--seed", "N", "random seed (default: 1)"),
    ("--device", None, "cpu, cuda, cuda:1 ... (default: auto, a GPU if there is one)"),
    ("--devices", "N", "processes on this machine, each with a GPU or a share of the cores (default: 1)"),
    ("--num-nodes", "N", "number of machines, each with --devices processes; all get the same command (default: 1)"),
    ("--sync-batchnorm", "BOOL", "BatchNorm statistics over whole batches of all devices (default: true)"),
    ("--exemplar-megabytes", "N", "megabytes of exemplar photos in memory; more stay on disk (default: 256)"),
    ("--precision", None, "32 (default), or on GPUs that support them tf32, bf16-mixed or 16-mixed"),
    ("--compile", None, "compile the network: takes minutes once, then updates are faster"),
    ("--threads", "N", "CPU threads (default: all)"),
    ("--checkpoint-seconds", "S", "time between two checkpoints within a task (default: 30)"),
)

# What is done with it.
CONFIG: Table = (("--config", "FILE", "a YAML file with any options of the experiment"),)
RUN: Table = (
    ("--seeds", "N,N,...", "a run for each of these seeds, in subfolders of --output; then the mean of all"),
    ("--orders", "ORDER,...", "a run for each of these class orders; with --seeds, for each pair"),
    ("--address", "HOST:PORT", "with several machines: the address of one of them, where all connect"),
    ("--output", "FOLDER", "the run's folder (default: runs/METHOD-DATASET-...)"),
    ("--overwrite", None, "replace the run in that folder"),
    ("--resume", "RUN", "continue a run, or a folder of --seeds; without RUN, continue or start the run in --output"),
    ("--from-base", "RUN", "take the first task from another run with the same settings"),
    ("--allow-changed-method", None, "resume even if the file of --method was edited"),
    ("--logger", "NAME,...", "also write the numbers for other programs: csv, tensorboard, wandb, mlflow"),
    ("--tensorboard", None, "the same as --logger tensorboard"),
    ("--print-config", None, "check the options and the data, print the configuration as YAML, and stop"),
)
SEARCH: Table = (
    ("--over", "OPTION=VALUES", "a hyper-parameter and its values: a range 0.01..0.2 or a list 1,3,5; repeatable"),
    ("--trials", "N", "total number of trials (default: 10)"),
    ("--inference", "cnn|nme", "whose average incremental accuracy to maximise (default: cnn)"),
    ("--output", "FOLDER", "folder of the trials; an existing search is continued"),
)
FLAGS: Flags = {
    "--compile": {"action": "store_const", "const": "true"},
    "--freeze": {"nargs": "?", "const": "true"},
    "--resume": {"nargs": "?", "const": ""},
    "--over": {"action": "append", "default": []},
    "--trials": {"type": int, "default": 10},
    "--inference": {"choices": ("cnn", "nme"), "default": "cnn"},
    "--logger": {"action": "append", "default": []},
    "--tensorboard": {"dest": "logger", "action": "append_const", "const": "tensorboard"},
    **dict.fromkeys(("--overwrite", "--allow-changed-method", "--print-config"), SWITCH),
}
EXPERIMENT_OPTIONS = tuple(option.removeprefix("--").replace("-", "_") for option, _, _ in EXPERIMENT)


def add_run_commands(commands: Any) -> None:
    run = add_command(
        commands,
        "run",
        "learn the classes of a dataset in tasks",
        description="Learn the classes of a dataset in tasks, testing on all classes seen after each.\n" + RUN_HELP,
        epilog=RUN_EXAMPLES,
    )
    add_options(run, EXPERIMENT + CONFIG + RUN, FLAGS)
    search = add_command(
        commands,
        "search",
        "search for good hyper-parameters of a method, without the test images",
        description="Run an experiment with several values of some hyper-parameters and print the best, measured on "
        "held-out\ntraining images (--validation, default 0.1). Takes the options of an experiment.\n" + RUN_HELP,
        epilog=SEARCH_EXAMPLES,
    )
    add_options(search, EXPERIMENT + CONFIG + SEARCH, FLAGS)
