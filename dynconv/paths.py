"""Where the package, its shipped data and the checkout of its repository are."""

from pathlib import Path

from dynconv.errors import UserError

PACKAGE = Path(__file__).resolve().parent


def find_checkout() -> Path | None:
    """Return the root of the repository, or None if dynconv is installed without it."""
    root = PACKAGE.parent
    return root if (root / "book" / "_toc.yml").is_file() else None


def data_places() -> tuple[Path, Path]:
    """Return where shipped data may be: in `data/` of the repository, or inside the package."""
    return PACKAGE.parent / "data", PACKAGE / "data"


def data_dir() -> Path:
    """Return `data/` of the repository, or the copy of it inside an installed package."""
    places = data_places()
    for place in places:
        if (place / "manifest.yaml").is_file():  # site-packages/data may belong to another project
            return place
    raise UserError(f"no shipped corpora: no manifest.yaml in {places[0]} or {places[1]}")


def raw_dir() -> Path:
    """Return where downloads go: `data/raw`, in the working directory if there is no checkout."""
    return (data_dir() if find_checkout() else Path("data")) / "raw"
