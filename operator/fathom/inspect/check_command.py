"""`fathom check`."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from fathom.adapters.hub import TIMEOUT_S, HuggingFaceHub
from fathom.adapters.model_files import is_directory, local_facts
from fathom.adapters.ports import ModelHub
from fathom.core.models.facts import ModelFacts, ModelRef, model_refs
from fathom.inspect.asking.live_check_command import WAIT_S, live_check
from fathom.inspect.check_view import lines_of
from fathom.inspect.completion import names_beginning
from fathom.inspect.options import Context, Kubeconfig, Namespace, refuse
from fathom.inspect.resources import REFUSED, Files, FilesByFlag, judged, named, read, tell
from fathom.resource import SpeculativeDeployment

_LONGEST_TIMEOUT_S: Final = 600.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def check_command(
    files: Files = None,
    *,
    filename: FilesByFlag = None,
    live: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=names_beginning,
            help="Instead of files: have the operator compare what a running one says with and "
            "without speculation.",
        ),
    ] = "",
    wait: Annotated[
        float, typer.Option(min=1, help="With --live: seconds to wait for the operator's answer.")
    ] = WAIT_S,
    namespace: Namespace = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline", help="Ask no hub; look into its cache. HF_HUB_OFFLINE=1 does the same."
        ),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=_LONGEST_TIMEOUT_S, help="Seconds that one request to the hub may take."
        ),
    ] = TIMEOUT_S,
) -> None:
    """Say what is wrong with a SpeculativeDeployment, or what is known of its models and depth.

    Reads the config.json of target and draft, from an absolute directory or from the Hugging Face
    Hub (HF_TOKEN, HF_ENDPOINT), and no weights. Exit code 2: something is refused.

    With --live NAME, no file is read: a few prompts are asked of replicas in the cluster, at depth
    0 and at the deepest depth in force. Exit codes: 0, the same tokens; 1, not so; 2, not checked.
    """
    manifests = named(files, filename)
    if bool(manifests) == bool(live):
        refuse("Name either files (-f FILE) or a running SpeculativeDeployment (--live NAME).")
    if live:
        raise typer.Exit(
            live_check(
                live, namespace=namespace, context=context, kubeconfig=kubeconfig, wait_s=wait
            )
        )
    hub = HuggingFaceHub(offline=offline, timeout_s=timeout)
    refused = False
    for document in read(manifests):
        if not isinstance(document.parsed, SpeculativeDeployment):
            tell(document.where, document.parsed)
            refused = True
            continue
        models = asyncio.run(_looked_up(document.parsed, hub))
        judgement = judged(document.parsed, models)
        tell(document.where, judgement.errors)
        refused = refused or bool(judgement.errors)
        for line in lines_of(document.parsed, judgement):
            typer.echo(line)
    raise typer.Exit(REFUSED if refused else 0)


async def _looked_up(
    resource: SpeculativeDeployment, hub: ModelHub
) -> Mapping[ModelRef, ModelFacts]:
    refs = model_refs(resource.spec)
    facts = await asyncio.gather(*(_look_up(ref, hub) for ref in refs))
    return dict(zip(refs, facts, strict=True))


async def _look_up(ref: ModelRef, hub: ModelHub) -> ModelFacts:
    if is_directory(ref):
        return await asyncio.to_thread(local_facts, ref)
    return await hub.look_up(ref)
