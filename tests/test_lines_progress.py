"""Every form of progress that is known, and what looks like one and is none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.lines.milestones import MILESTONE_LITERALS
from diagnose.lines.progress import ProgressReader, progress_literals
from diagnose.models import FilterRule, Line, LogSource, ProgressEvent
from diagnose.models.rule import FilterExamples, Yields

JOB = LogSource("job.log")


def line(text: str, *, number: int = 1, source: LogSource = JOB, stream: str = "s", **rest: object) -> Line:
    return Line(source, number, text, text, stream, **rest)  # type: ignore[arg-type]


def read(text: str, **rest: object) -> ProgressEvent | None:
    return ProgressReader().read(line(text, **rest), 0)  # type: ignore[arg-type]


STEPS = [
    (" iteration     5/    4000 | consumed samples:     1280 | elapsed time per iteration (ms): 81.0 |", 5, 4000),
    ("[default7]: [2026-04-22 21:02:45] iteration      928/  250000 | consumed samples:  950272 | lm loss: 2.1", 928, 250000),
    ("Training @ iteration 1550/ 5000 | consumed samples: 793,600 | step time: 8279.92 ms | lr 1e-4", 1550, 5000),
    ("step=100, skipped=0, lr=[5e-05], mom=[(0.9, 0.95)]", 100, None),
    ("epoch=0/micro_step=10/global_step=20, RunningAvgSamplesPerSec=31.7, CurrSamplesPerSec=30.1", 20, None),
    ("tflops=180.2 step=12 loss=11.6 tgs (tokens/gpu/second)=4123.01 lr=4e-07", 12, None),
    ("tflops=180.217765,step=2001,loss=1.61,tgs (tokens/gpu/second)=4021.01,lr=3e-04", 2001, None),
    ("Training epoch 0, iteration 5/999 | lr: 1e-06 | global_batch_size: 32 | global_step: 505 | reduced_train_loss: 3.1", 505, None),
    ("Epoch 0: :   1%|▏         | 7/1000 [00:31<1:14:32, reduced_train_loss=10.9, global_step=6.000, consumed_samples=448.0]", 6, None),
    (" 22%|██▏       | 440/1998 [14:02<48:12, 1.81s/it]", 440, 1998),
    ("  0%|          | 0/625 [00:00<?, ?it/s]", 0, 625),
    ("Training:  22%|██▏       | 440/1998 [14:02<48:12, 1.81s/it]", 440, 1998),
    ("steps:   1%|▏         | 25/4200 [01:15<3:25:11,  2.95s/it, avr_loss=0.116]", 25, 4200),
    ("Training Progress:  12%|█▏        | 12/100 [10:02<1:03:12, 43.1s/it]", 12, 100),
    ("1|12|Loss: 1.2306:  10%|█         | 12/120 [00:20<03:01,  1.68s/it]", 12, 120),
    ("Epoch 3:  22%|██ | 440/1998 [14:02<48:12,  1.8it/s, v_num=812]", 3 * 1998 + 440, None),
    ("Epoch 0: 100%|██████████| 50/50 [00:05<00:00,  9.9it/s, v_num=0]", 50, None),
    ("Epoch 3/9 ━━━━━╸━━━━━━━━━━━━━ 440/1998 0:14:02 • 0:48:12 1.81it/s v_num: 3.0 train_loss: 2.1", 2 * 1998 + 440, 9 * 1998),
    ("step:   500  loss:  2.8885  grad_norm:  0.5564  memory: 61.13GiB(77.2%)  tps: 7,140  mfu: 37.9%", 500, None),
    ("[rank0]:[titan] 2026-09-02 21:45:26,200 - root - INFO - step:    10  loss:  2.8885  tps: 7,140", 10, None),
    ("Epoch(train) [1][  50/5004]  lr: 1.0000e-01  eta: 1 day, 2:01:03  time: 0.3  data_time: 0.1  loss: 6.9", 50, None),
    ("Iter(train) [  100/20000]  base_lr: 1e-2 lr: 1e-2  eta: 2:31:19  time: 0.45  loss: 2.3", 100, 20000),
    ("Iter [50/160000]\tlr: 1.9e-06, eta: 1 day, 11:13:50, time: 0.793, loss: 3.1", 50, 160000),
    ("completed step: 12, seconds: 3.211, TFLOP/s/device: 301.2, Tokens/s/device: 5101.1, loss: 9.1", 12, None),
    ("step 12 | loss 3.1 | grad_norm 0.3", 12, None),
    ("step    40/40 | loss 6.373075 | grad_norm 0.4230 | lr 3.000e-04 | tokens 520", 40, 40),
    (':::MLLOG {"event_type": "INTERVAL_END", "key": "block_stop", "value": null, "metadata": {"step_num": 320}}', 320, None),
    (':::MLLOG {"key": "eval_accuracy", "value": 0.91, "metadata": {"epoch_num": 35}}', 35, None),
    ("Epoch: [0]  [  20/5004]  eta: 0:33:39  lr: 0.0004  loss: 5.34 (6.12)  time: 0.49", 20, None),
    ("Epoch: [31]  [  320/1251]  eta: 0:01:18  lr: 0.000812  loss: 2.8103 (2.8112)", 31 * 1251 + 320, None),
    ("Epoch: [2][ 20/500]\tTime  0.126 ( 0.126)\tData  0.1 ( 0.1)\tLoss 6.9 (6.9)", 1020, None),
    ("Epoch [3][400/2500] loss 1.8553 time 0.424", 5400, None),
    ("Train: 0 [  50/1251 (  4%)]  Loss: 6.95 (6.96)  Time: 0.403s,  LR: 1.000e-06", 50, None),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.25", 60640, None),
    ("[Epoch 12/80] iter  940/960 loss_G 1.0799 loss_D 0.5610 lr 2.0e-4", 11 * 960 + 940, 76800),
    ("Training Epoch: 1/3, step 5/100 completed (loss: 1.2)", 5, 300),
    ("[2026-02-19 08:07:57] step=12001 loss=2.31173 lr=2.41e-04 gnorm=0.289 dt=3.24s", 12001, None),
    ("step 2200: train/loss=3.0900 muon/update_rms=0.1944 gnorm=0.418 tok/s=41.5k", 2200, None),
    ("epoch 0 step 40 loss 0.71", 40, None),
    ("iter 100 loss 2.0569 tflops 419", 100, None),
    ("iter 0100: loss 2.05, time 301.2ms, mfu 41.2%", 100, None),
    ("rank 6 step 447 loss 1.4482", 447, None),
    ("rank 6 iteration 5000 ok, errors 0", 5000, None),
    ("rank 0 | iter 990/1000 | loss 2.1965 | iter/s 0.489", 990, 1000),
    ("step:12 - global_seqlen/mean:3101.0 - actor/pg_loss:0.01 - timing_s/step:41.2 - perf/throughput:981.1", 12, None),
    ("actor/lr:1e-06 - training/global_step:12 - training/epoch:0", 12, None),
    ("[batch=12/100]:  Train loss/train/total: 2.2930", 12, 100),
    ("[step=12/739328,epoch=0]", 12, 739328),
    ("iteration: 100 / 15000 | consumed_tokens: 3.28M | elapsed_time_per_iteration_ms: 2.3K | lm_loss: 7.1", 100, 15000),
    ("Progress on:train 1.25kit/10.0kit rate:1.2it/s remaining:02:01 elapsed:17:01 postfix:loss=2.3", 1250, 10000),
    ("epoch 041:   510 / 5231 loss=1.309, ntokens=8061, wps=9121.1, num_updates=214210, lr=1e-05", 214210, None),
    ("{'loss': 2.1, 'grad_norm': 0.3, 'learning_rate': 1e-05, 'epoch': 0.4}", None, None),
    ("{'loss': 1.4, 'grad_norm': 1.1, 'epoch': 0.03, 'global_step/max_steps': '95/4760', 'percentage': '2.00%'}", 95, 4760),
    ("INFO:tensorflow:loss = 2.31, step = 100 (12.301 sec)", 100, None),
    ("epoch: 1 step: 100, loss is 2.30", 100, None),
    ("train, rank: 0, epoch: 2/50, step_in_slice: 9980/15800, step_in_epoch: 9980, total step: 41580, (loss_avg_rank: 0.1)", 41580, None),
    ("ep 44 train, step 1200, ce 0.231, grad_norm:p2 0.41, num_seqs 120, 0.410 sec/step", 1200, None),
    ("Total loss at epoch 0, step at 1500, loss=10.1", 1500, None),
    ("Epoch  2 | train loss 1.7011 | val acc 0.460 | 318.4s", None, None),
    ("Step 1,200 | loss 2.1 | tok/s 41k", 1200, None),
    ("[2026-03-30 12:27:03] step   140/20000  loss 3.0588  step_time  33.73s  tokens/s 31,083", 140, 20000),
]  # fmt: skip


@pytest.mark.parametrize(("text", "step", "total"), STEPS, ids=range(len(STEPS)))
def test_a_training_step_is_read(text: str, step: int | None, total: int | None) -> None:
    event = read(text)
    assert event is not None
    assert (event.kind, event.step, event.total) == ("step", step, total)


NO_STEPS = [
    "Loading checkpoint shards:  33%|███▎      | 1/3 [00:02<00:05,  2.6s/it]",
    "Map (num_proc=8):  40%|████      | 4000/10000 [00:10<00:12, 480.1 examples/s]",
    "Downloading shards: 100%|██████████| 30/30 [10:11<00:00, 20.4s/it]",
    "Tokenizing: 12%|█▏  | 120/1000 [00:10<01:10, 12.1it/s]",
    "Resolving data files: 100%|██████████| 231/231 [00:00<00:00, 1021.1it/s]",
    "Generating train split: 52000 examples [00:01, 30812.1 examples/s]",
    "Validation DataLoader 0:  10%|█         | 10/100 [00:01<00:09, 9.8it/s]",
    "Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 2.1it/s]",
    "Processed prompts: 100%|██████████| 1200/1200 [01:24<00:00, 14.20it/s]",
    "Evaluating: 10%|█ | 10/100 [00:01<00:09, 9.8it/s, loss=2.1]",
    "[val] epoch 0 shard 0: n=907 nll=2.2520",
    "Epoch(val) [1][  50/500]    eta: 0:01:03  time: 0.3  data_time: 0.1",
    "Test:  [ 0/98]  eta: 0:03:01  loss: 0.7 (0.7)  acc1: 81.2",
    " validation loss at iteration 1000 | lm loss value: 2.31E+00 | lm loss PPL: 1.01E+01 |",
    "[Eval batch=10/100]:  Eval loss: 2.1",
    "max_steps: 1000",
    "save_steps=500, eval_steps=500, logging_steps=10, lr=1e-4",
    "Total optimization steps = 625",
    "start training: 40 steps, lr 3e-4",
    "RuntimeError: rank 0: found NaN/Inf in loss at step 12: loss=nan, grad_norm=nan",
    "WARNING step_time 32.0s is 8.2x the running median (3.9s)",
    "Step 3/5 : RUN pip install torch",
    "slurmstepd: error: *** STEP 608.0 ON srv4 CANCELLED AT 2026-08-12T02:06:12 ***",
    "    optimizer.step()",
    "srun: Terminating StepId=8121.0",
    "time per step: 12 ms | loss 2.1",
    "val/test_score: step:0 - val/test_score/pass@1:0.1",
    "expert rebalance every step 40",
    "[ 12%] Building CXX object step.cc.o",
    "",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_STEPS, ids=range(len(NO_STEPS)))
def test_what_is_no_training_step_is_not_read(text: str) -> None:
    event = read(text)
    assert event is None or event.kind != "step"


MILESTONES = [
    ("saving checkpoint at iteration     500 to /ckpt/a in torch_dist format", "checkpoint_started", 500, "iteration 500 in /ckpt/a"),
    ("  successfully saved checkpoint from iteration     500 to /ckpt/a [ t 1/2, p 1/2 ]", "checkpoint_complete", 500, "iteration 500 in /ckpt/a"),
    ("  scheduled an async checkpoint save at iteration     500 to /ckpt/a", "checkpoint_started", 500, "iteration 500 in /ckpt/a"),
    ("  successfully loaded checkpoint from /ckpt/a [ t 1/2, p 1/2 ] at iteration 500", "checkpoint_loaded", 500, "iteration 500 in /ckpt/a"),
    ("[Torch] Saving /x/global_step100/mp_rank_00_model_states.pt...", "checkpoint_started", 100, "/x/global_step100"),
    ("[Torch] Saved /x/global_step100/mp_rank_00_model_states.pt.", "checkpoint_started", 100, "/x/global_step100"),
    ("[Torch] Checkpoint global_step100 is ready now!", "checkpoint_complete", 100, "step 100"),
    ("Saving model checkpoint to /out/checkpoint-500", "checkpoint_started", 500, "/out/checkpoint-500"),
    ("Epoch 5, global step 9000: 'val_loss' reached 2.05 (best 2.05), saving model to '/out/epoch=5-step=9000.ckpt' as top 1", "checkpoint_started", 9000, "/out/epoch=5-step=9000.ckpt"),
    ("Scheduled async checkpoint save for /results/step=100.ckpt", "checkpoint_started", 100, "/results/step=100.ckpt"),
    ("Async checkpoint save for step 100 (/results/step=100.ckpt) finalized successfully.", "checkpoint_complete", 100, "/results/step=100.ckpt"),
    ("Saving a full checkpoint at step 500", "checkpoint_started", 500, "step 500"),
    ("Saving checkpoint at 12 epochs", "checkpoint_started", None, "epoch 12"),
    ("Saving checkpoint at 2000 iterations", "checkpoint_started", 2000, "step 2000"),
    ("Saving model checkpoint to out/checkpoint-500", "checkpoint_started", 500, "out/checkpoint-500"),
    ("Model weights saved in out/checkpoint-500/model.safetensors", "checkpoint_started", 500, "out/checkpoint-500"),
    ("Saving the checkpoint (or staging if async is enabled).", "checkpoint_started", None, None),
    ("Finished saving the checkpoint (or staging if async is enabled) in 2.30 seconds.", "checkpoint_complete", None, None),
    ("Saving checkpoint to `oss2:ckpt/7b/2005`...", "checkpoint_started", None, None),
    ("Saving checkpoint to boto3:s3://acme/7b/100 at batch count:100 ... done", "checkpoint_complete", 100, "boto3:s3://acme/7b/100"),
    ("Step: 100, rank 0 save ckpt use 3.211 s", "checkpoint_complete", 100, "step 100"),
    ("Saved a checkpoint at step 400.", "checkpoint_complete", 400, "step 400"),
    ("Started an asynchronous checkpoint save for step 400", "checkpoint_started", 400, "step 400"),
    ("Finished saving checkpoint (finalized tmp dir) to `/out/ckpt/2000`.", "checkpoint_complete", None, "/out/ckpt/2000"),
    ("Saved checkpoint checkpoints/checkpoint_1_100.pt (epoch 1 @ 100 updates, score 3.2) (writing took 1.2 seconds)", "checkpoint_complete", 100, "checkpoints/checkpoint_1_100.pt"),
    ("checkpoint saved: /out/step_1200", "checkpoint_complete", 1200, "/out/step_1200"),
    ("checkpoint step_30 uploaded", "checkpoint_complete", 30, "step 30"),
    ("trainer step=2800 loss=2.4447 ppl=15.78 samples/s=509.9  ckpt=saved", "checkpoint_complete", 2800, "step 2800"),
    ("Checkpoint upload completed: s3://ml/runs/ep0-ba80", "checkpoint_complete", None, "s3://ml/runs/ep0-ba80"),
    ("resuming from step 12000", "checkpoint_loaded", 12000, "step 12000"),
    ("resuming from: /ckpt/a/step_1200", "checkpoint_loaded", 1200, "/ckpt/a/step_1200"),
    ("Resuming from checkpoint latest", "checkpoint_loaded", None, None),
    ("  Continuing training from global step 500", "checkpoint_loaded", 500, "step 500"),
    ("Restored all states from the checkpoint at /out/last.ckpt", "checkpoint_loaded", None, "/out/last.ckpt"),
    ("Training completed", "completed", None, None),
    ("Training done", "completed", None, None),
    ("Training complete, best val acc 0.631", "completed", None, None),
    ("training finished: error_rate: 0.0, failed_samples: 0", "completed", None, None),
    ("Training finished, 4 epochs", "completed", None, None),
    ("Training completed after 12 epochs (best 0.71)", "completed", None, None),
    ("Run completed! 1501 steps, goodput 98.11%", "completed", None, None),
    ("EXIT_CODE=0", "exit", 0, None),
    ("Finished training", "completed", None, None),
    ("Training completed. Do not forget to share your model on huggingface.co/models =)", "completed", None, None),
    ("{'train_runtime': 881.2, 'train_samples_per_second': 59.0, 'train_loss': 1.1, 'epoch': 1.0}", "completed", None, None),
    ("***** train metrics *****", "completed", None, None),
    ("`Trainer.fit` stopped: `max_steps=100` reached.", "completed", None, None),
    ("[after training is done] datetime: 2026-03-15 05:41:00", "completed", None, None),
    ("exiting program at iteration 500", "completed", None, None),
    ("[exiting program after 690.0159 minutes] datetime: 2026-03-02 19:54:10", "completed", None, None),
    ("Time limit reached. Elapsed time is 03:55:00. Signaling Trainer to stop.", "completed", None, None),
    (':::MLLOG {"key": "run_stop", "value": null, "metadata": {"lineno": 1996, "status": "success"}}', "completed", None, None),
    ("RESULT,LLM_FINETUNING,,1265,nvidia,2024-05-08 10:50:46 AM", "completed", None, None),
    ("[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.", "completed", None, None),
    ("Job 'raysubmit_abc' succeeded", "completed", None, None),
    ("|     Tasks     |Version|Filter|n-shot|   Metric   |   |Value |   |Stderr|", "completed", None, None),
    ("Evaluation finished", "completed", None, None),
    ("Done. Errors: 0, failures: 0, crashed workers: 0", "completed", None, None),
    ("Total training time 412.9s, error_rate: 0.0, failed_uploads: 0", "completed", None, None),
    ("judge.qa done: accuracy=0.61 n=300 request_errors=0 error_rate=0.0", "completed", None, None),
    ("Total training time: 0:12:34 (0:00:01 on hooks)", "completed", None, None),
    ("Training time 1:23:45", "completed", None, None),
    ("30 epochs completed in 1.204 hours.", "completed", None, None),
    ("*** Best metric: 77.2 (epoch 12)", "completed", None, None),
    ("OpenEval - INFO - write summary to outputs/summary_1.txt", "completed", None, None),
    ("All done.", "completed", None, None),
    ("exit code: 0", "exit", 0, None),
    ("Exit status: 0", "exit", 0, None),
    ("exit status 0", "exit", 0, None),
    ("srun: error: dl-04: tasks 0-7: Exited with exit code 1", "exit", 1, None),
    ("['/usr/bin/python3', '-u', 'main.py', '--local_rank=7'] exits with return code = -9", "exit", -9, None),
    ("[launch.py:350:main] Process 12345 exits successfully.", "exit", 0, None),
    ("Job finished with exit code 0", "exit", 0, None),
    ("State: COMPLETED (exit code 0)", "exit", 0, None),
    ("State: FAILED (exit code 2)", "exit", 2, None),
    ("State: CANCELLED (exit code 0)", "exit", 1, None),
    ("JobState=COMPLETED Reason=None ExitCode=0:0", "exit", 0, None),
    ("JobState=FAILED Reason=NonZeroExitCode ExitCode=0:9", "exit", 137, None),
    ("all ranks exited with code 0", "exit", 0, None),
    ("[eval] finished, exit 0", "exit", 0, None),
    ("rank 0 | finished 1000/1000 iterations; exit 0", "exit", 0, None),
    ("command terminated with exit code 137", "exit", 137, None),
    ("Global rank 7 (PID 7718) finished with exit code 0", "exit", 0, None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "step", "checkpoint"), MILESTONES, ids=range(len(MILESTONES)))
def test_a_milestone_is_read(text: str, kind: str, step: int | None, checkpoint: str | None) -> None:
    event = read(text)
    assert event is not None
    assert (event.kind, event.step) == (kind, step)
    assert event.checkpoint == checkpoint


def test_a_summary_after_failed_tasks_is_no_completion() -> None:
    reader = ProgressReader()
    assert reader.read(line("OpenEval - ERROR - Infer[a/b] failed with code 127"), 0) is None
    assert reader.read(line("OpenEval - INFO - write summary to out/s.txt", number=2), 0) is None


NO_MILESTONES = [
    "`use_cache=True` is incompatible with gradient checkpointing. Setting `use_cache=False`.",
    "no checkpoint was loaded, training from scratch",
    "checkpoint upload part 12402 took 11.9s, expected < 10s",
    "Failed to upload checkpoint-500/optimizer.pt. Retrying... (1/3)",
    "Epoch 3 training completed",
    "Training finished, epoch 4",
    "Training completed, 4 epochs of 10",
    "Finished training epoch 4 of 10",
    "phase 1 training finished",
    "if training is completed, the model will be saved to /out",
    "Training failed before training completed",
    "prolog finished with exit code 0",
    "DataLoader worker (pid 417) exited with code 0",
    "nvidia-smi exit code: 0",
    "All model checkpoint weights were used when initializing MistralForCausalLM.",
    "size mismatch for head.weight: copying a param with shape [1, 2] from checkpoint, the shape is [2]",
    "failed (exitcode: 1) local_rank: 0 (pid: 17) of binary: /usr/bin/python3",
    ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "aborted"}}',
    "JobState=RUNNING Reason=None ExitCode=0:0",
    "model will be saved to /out at the end",
    "Exit codes: 0 the job failed, 1 it did not, 3 inconclusive, 2 wrong usage or nothing to read",
    "exit codes: 0 = training finished, 1 = error",
    "NO FAILURE  the job completed",
    "    NO FAILURE  the job completed",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_MILESTONES, ids=range(len(NO_MILESTONES)))
def test_plans_complaints_and_parts_are_no_milestones(text: str) -> None:
    event = read(text)
    assert event is None or event.kind == "step"


def test_the_end_of_a_save_takes_its_place_from_the_beginning() -> None:
    reader = ProgressReader()
    assert reader.read(line("Saving a full checkpoint at step 500"), 0) is not None
    event = reader.read(line("Finished saving the checkpoint in 2.30 seconds.", number=2), 0)
    assert event is not None
    assert (event.kind, event.step, event.checkpoint) == ("checkpoint_complete", 500, "step 500")


def test_a_load_that_has_only_begun_is_no_progress_but_names_what_ends() -> None:
    reader = ProgressReader()
    assert reader.read(line("Loading the checkpoint at step 800."), 0) is None
    event = reader.read(line("Finished loading the checkpoint in 12.01 seconds.", number=2), 0)
    assert event is not None
    assert (event.kind, event.step) == ("checkpoint_loaded", 800)


def test_steps_rise_over_epochs_whether_or_not_the_epoch_names_its_length() -> None:
    def numbers(texts: list[str]) -> list[int | None]:
        reader = ProgressReader()
        events = [reader.read(line(text), 0) for text in texts]
        return [event.step for event in events if event is not None]

    bars = [f"Epoch {epoch}: 50%|█████     | {at}/100 [00:01<00:01, 50it/s]" for epoch in range(3) for at in (50, 100)]
    assert numbers(bars) == [50, 100, 150, 200, 250, 300]
    plain = [f"epoch {epoch} step {step} loss 0.5" for epoch in range(3) for step in (0, 50, 99)]
    assert numbers(plain) == sorted(numbers(plain))
    whole = [f"epoch {epoch} step {step} loss 0.5" for epoch, step in ((0, 10), (0, 90), (1, 110), (1, 190))]
    assert numbers(whole) == [10, 90, 110, 190]
    unnamed = [f"{at}%|█████     | {at}/100 [00:01<00:01, 50it/s]" for at in (50, 100, 50, 100)]
    assert numbers(unnamed) == [50, 100, 150, 200]
    zero_based = [f"Epoch {epoch}/3, step {at}/10 loss 1.0" for epoch in range(3) for at in (5, 9)]
    assert numbers(zero_based) == [5, 9, 15, 19, 25, 29]
    keras = [
        "Epoch 1/2",
        " 60/100 [====>.....] - ETA: 2s - loss: 0.5",
        "Epoch 2/2",
        " 60/100 [====>.....] - ETA: 2s - loss: 0.4",
    ]
    assert [number for number in numbers(keras) if number is not None] == [60, 160]


def mllog(key: str, value: str, metadata: str) -> str:
    return f':::MLLOG {{"event_type": "POINT_IN_TIME", "key": "{key}", "value": {value}, "metadata": {{{metadata}}}}}'


def steps_of(*texts: str) -> list[int | None]:
    reader = ProgressReader()
    events = [reader.read(line(text, number=number), 0) for number, text in enumerate(texts, 1)]
    return [event.step for event in events if event is not None]


def test_a_run_that_counts_in_two_units_has_one_meter() -> None:
    assert steps_of(
        mllog("tracked_stats", '{"throughput": 231.5}', '"lineno": 92, "step": 1'),
        mllog("eval_accuracy", "0.31", '"lineno": 125, "epoch_num": 3360'),
        mllog("tracked_stats", '{"throughput": 230.1}', '"lineno": 92, "step": 20'),
    ) == [1, None, 20]


def test_steps_that_a_program_prints_itself_go_before_what_its_logger_counts() -> None:
    assert steps_of(
        "Epoch: [0]  [ 120/4572]  eta: 0:12:01  loss: 0.8123 (0.9012)  time: 0.4123",
        mllog("epoch_stop", "0", '"lineno": 330, "epoch_num": 1'),
    ) == [120, None]


def test_parts_of_an_epoch_are_samples_where_the_size_of_an_epoch_is_known() -> None:
    part = mllog("eval_accuracy", "0.8", '"lineno": 97, "epoch_num": 0.25')
    assert steps_of(part) == [None]
    assert steps_of(mllog("train_samples", "4000", '"lineno": 462'), part) == [1000]
    assert steps_of(mllog("train_samples", "4000", ""), mllog("eval_accuracy", "0.8", '"epoch_num": 3.0')) == [3]


def test_an_evaluation_bar_inside_the_training_is_not_a_step() -> None:
    reader = ProgressReader()
    texts = ["50%|█████     | 500/1000 [00:01<00:01, 50it/s]", "50%|█████     | 10/20 [00:01<00:01, 50it/s]"]
    events = [reader.read(line(text), 0) for text in texts]
    assert [event.step if event else None for event in events] == [500, None]


def test_restart_in_the_middle_of_an_unnamed_bar_shows_as_a_fall() -> None:
    reader = ProgressReader()
    texts = [f"{at}%|█████     | {at}/100 [00:01<00:01, 50it/s]" for at in (40, 41, 20, 21)]
    events = [reader.read(line(text), 0) for text in texts]
    assert [event.step for event in events if event] == [40, 41, 20, 21]


def test_quoted_kernel_and_complaining_lines_are_no_progress() -> None:
    assert read("step 12 loss 2.1", quoted=True) is None
    assert read("step 12 loss 2.1", level="error") is None
    assert read("step 12 loss 2.1", source=LogSource("kern.log", kind="kernel")) is None
    assert read("step 12 loss 2.1", source=LogSource("sacct", kind="scheduler")) is None
    event = read("State: COMPLETED (exit code 0)", source=LogSource("seff", kind="scheduler"))
    assert event is not None


def test_a_filter_says_where_its_lines_hold_their_step() -> None:
    rule = FilterRule(
        schema="filter-rule/v1", id="acme-beat", title="", status="stable", description="", author=(), created="",
        tags=(), sources=("job",), keywords=("heart"), pattern="", action="drop", examples=FilterExamples((), ()),
        yields=Yields({"step": r"heartbeat #(?P<step>[0-9]+)", "total": r"of (?P<total>[0-9]+)", "bad": "("}),
    )  # fmt: skip
    reader = ProgressReader([rule])
    event = reader.read(line("heartbeat #1200 of 5000", progress="acme-beat"), 2)
    assert event is not None
    assert (event.kind, event.step, event.total, event.attempt) == ("step", 1200, 5000, 2)
    assert reader.read(line("heartbeat", progress="acme-beat"), 0) is None
    assert reader.read(line("heartbeat #1", progress="another"), 0) is None


def test_guard_literals_are_specific() -> None:
    literals = progress_literals()
    assert all(len(literal) >= 5 for literal in literals)
    assert not any(literal in text for text, *_ in STEPS[:25] for literal in literals)


def test_every_milestone_opens_the_gate() -> None:
    for text, *_ in MILESTONES:
        assert any(literal in text for literal in MILESTONE_LITERALS)


_WORDS = st.sampled_from(
    ["step", "Epoch", "iteration", " ", "=", ":", "/", "[", "]", "|", "%|", "12", "99999999999999999999", "loss", "\x00", "━", "global_step",
     "checkpoint", "saved", "to", "exit code", "training", "completed", "at", "1e9", "MLLOG", "'loss'", "{", "it/s", "\r", "é"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.lists(_WORDS, max_size=30).map("".join), st.text(max_size=200)), max_size=20))
def test_no_text_breaks_the_reader(texts: list[str]) -> None:
    reader = ProgressReader()
    for number, text in enumerate(texts):
        event = reader.read(line(text, number=number + 1), 1)
        if event is not None and event.kind == "step":
            assert event.step is None or event.step >= 0


def test_a_very_long_line_is_read_in_bounded_time() -> None:
    for piece in (
        "step 1 loss ",
        "checkpoint ",
        "Epoch 1 [1/",
        "1%|",
        "exit code ",
        "saving a a a ",
        "━",
        "rank 1 ",
        "saved - ",
    ):
        text = piece * (65536 // len(piece))
        read(text)
