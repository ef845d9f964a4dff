"""Attacks this installation with programs, requests, damaged files and `kill -9`, and counts what goes wrong.

    python -m experiments.attack                # all counts, however long that takes
    python -m experiments.attack --minutes 5    # as much of them as fits

Only this machine is attacked: the server listens on 127.0.0.1, and files lie in a temporary folder. The exit status is
1 if anything was lost, wrong or crashed.

| area | injected | must not happen |
|---|---|---|
| programs | programs with some letters and lines changed | anything but a program or a `ProgramError` |
| tokens | token ids with some of them changed | another verdict than the parser's |
| model, manifest, shard, checkpoint, config | files with bytes, keys or values changed | anything but a sentence |
| shard | also rows with tokens, targets or lengths changed | a row that is read and is not true |
| requests | mutated programs to `/api/predict` and `/api/explain` | 5xx but 503, no answer, a wrong true value |
| memory | for each packaged model, the requests that take most memory, two at a time | a server of more than 1 GB |
| connections | 1,100 halves of headers, 260 clients that never read | a server that others cannot reach |
| kills | `kill -9` of `generate` and `train` at any time | other bytes at the end |
"""
