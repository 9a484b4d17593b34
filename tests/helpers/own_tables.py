"""Real tables, written to a file and read again."""

from activebias.own.tables import read_table


def frame_of(loader):
    bunch = loader(as_frame=True)
    frame = bunch.frame.copy()
    frame["target"] = [str(bunch.target_names[label]) for label in bunch.target]
    return frame


def read(frame, folder, name="table.csv", target="target", **options):
    path = folder / name
    if isinstance(frame, str):
        path.write_text(frame)
    elif name.endswith("parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(
            path, index=False, sep=";" if "semicolon" in name else "\t" if name.endswith("tsv") else ","
        )
    return read_table(path, target=target, **{"validation": 0.2, "seed": 0} | options)
