"""`saccade demo`: a tour of attention that prints what it finds and saves pictures."""

from pathlib import Path


def main(*, out: Path = Path("demo")) -> int:
    """Take a tour of attention: ten short experiments on this machine, each with a few lines of result and a picture.

    It needs no data and no network and takes a minute or less.

    Args:
        out: The directory for the pictures.
    """
    from saccade.studies.tour import CHAPTERS, tour

    print(f"A tour of attention in {len(CHAPTERS)} stops; pictures go to {out}{'/' if out.name else ''}", flush=True)
    for number, (chapter, path) in enumerate(tour(out), start=1):
        print(f"\n{number}. {chapter.title}")
        for line in chapter.said:
            print(f"   {line}")
        print(f"   picture: {path}", flush=True)
    print("\nNext: saccade mechanisms bigbird   ·   saccade check --help   ·   saccade bench attention --help")
    return 0
