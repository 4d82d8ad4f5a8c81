"""Routes for videos: their list, and the record, words, file, thumbnails and clips of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from whenabouts.corpus import Corpus
from whenabouts.export.transcript import MEDIA_TYPES, transcript
from whenabouts.index.filters import make_filter, recorded
from whenabouts.index.records import VideoRecord
from whenabouts.search.coverage import streams_with_clips
from whenabouts.search.library import remedy_of, state_of
from whenabouts.server.errors import Problem, ServerError, printable, problems, safe_errors
from whenabouts.server.files import content_type, respond
from whenabouts.server.objects import OpenObject, respond_object
from whenabouts.server.schemas import (
    ChapterBody,
    ClipParameters,
    CueBody,
    CuesBody,
    NoQuery,
    PageInfo,
    SpanParameters,
    StreamOfVideo,
    TextsBody,
    TextsOfStream,
    ThumbnailParameters,
    TranscriptParameters,
    VideoBody,
    VideoDetails,
    VideoId,
    VideosBody,
    VideosParameters,
)
from whenabouts.server.service import Service, left, read_corpus, record_of, service_of, stream_titles
from whenabouts.shown import indexed_at, lines_of
from whenabouts.streams import stream as stream_named
from whenabouts.types import LONGEST_SECONDS, Moment
from whenabouts.video.cut import CUT_VERSION
from whenabouts.workplace.cached import cached_name

router = APIRouter(prefix="/api/videos")
MOST_CLIP_SECONDS = 600.0
_FIRST_WORDS = 200
# Tolerance past a video's end, because times and container lengths are rounded.
_SLACK_SECONDS = 1.0


def title_of(record: VideoRecord) -> str:
    """The title to show: the video's own, else its file name."""
    return printable(record.title) or record.file_name


def urls_of(record: VideoRecord, at: float) -> tuple[str | None, str | None]:
    """The addresses of a video's file and of its thumbnail at a time in seconds; None if it lacks one."""
    if record.kind != "media":
        return None, None
    base = f"/api/videos/{quote(record.video_id, safe='')}"
    return f"{base}/file", f"{base}/thumbnail?at={at:.3f}&width=320" if record.has_picture else None


@router.get("", responses=problems(), summary="The videos of the corpus")
async def videos(request: Request, parameters: Annotated[VideosParameters, Query()]) -> VideosBody:
    """Lists videos, page by page. Unreadable files are listed only with `where=video.state=unreadable`."""
    service = service_of(request)
    service.paths.check_conditions(parameters.where)
    if parameters.page_token and parameters.skip:
        raise ServerError(400, "invalid", "give page_token or skip, not both", field="skip")
    chosen = make_filter((), parameters.after, parameters.before, parameters.where)

    def read(corpus: Corpus) -> VideosBody:
        subject, token = service.pages.subject(corpus, f"videos {parameters.subject}"), parameters.page_token
        offset = service.pages.offset(subject, token) if token else parameters.skip
        end = offset + parameters.page_limit
        library = corpus.library
        rows = library.rows(chosen, parameters.sort, descending=parameters.descending)
        service.metrics.videos.set(library.count)
        ids = library.ids_of(rows[offset:end].tolist())
        records = {record.video_id: record for record in corpus.store.videos(ids)}
        listed = {name: records[name] for name in ids if name in records}
        words = _first_words(corpus, [name for name, record in listed.items() if not record.has_picture])
        streams = streams_with_clips(corpus.store, list(listed.values()))
        return VideosBody(
            data=[
                VideoBody(**facts_of(service, corpus, record, streams[name], words.get(name, "")))
                for name, record in listed.items()
            ],
            total=library.count,
            page_info=PageInfo(
                limit_per_page=parameters.page_limit,
                total_results=len(rows),
                next_page_token=service.pages.token(subject, end) if end < len(rows) else None,
            ),
            stream_titles=stream_titles(corpus),
            by_words=[name for name in corpus.streams if "text" in stream_named(name).meets],
        )

    return await service.read(service.reads, request, read)


def _first_words(corpus: Corpus, video_ids: list[str]) -> dict[str, str]:
    spoken = [name for name in corpus.streams if stream_named(name).transcript]
    return {
        video_id: printable(text)[:_FIRST_WORDS]
        for name in spoken
        for video_id, text in corpus.store.first_texts(name, video_ids).items()
    }


def facts_of(
    service: Service, corpus: Corpus, record: VideoRecord, streams: Sequence[str], words: str = ""
) -> dict[str, Any]:
    """The fields of a `VideoBody`; `streams` have clips of the video."""
    video_url, thumbnail_url = urls_of(record, (record.duration or 0.0) / 2)
    gone = record.is_gone
    state = state_of(record, is_gone=gone)
    shows = service.paths.are_shown
    damage = printable(record.damage or record.error)
    return {
        "video_id": record.video_id,
        "title": title_of(record),
        "name": record.file_name,
        "kind": record.kind,
        "duration": record.duration,
        "language": printable(record.language),
        "streams": list(streams),
        "gone": gone,
        "state": state,
        "damage": damage if shows else service.paths.without_folders(damage),
        "remedy": remedy_of(state, corpus.location if shows and len(corpus.places) == 1 else "DIR"),
        "words": words,
        "folder": service.paths.folder_of(record),
        "indexed": datetime.fromtimestamp(record.indexed_at, UTC).isoformat(),
        "recorded": recorded(record)[0].isoformat(),
        "recorded_from": recorded(record)[1],
        "has_picture": record.has_picture,
        "thumbnail_url": thumbnail_url,
        "video_url": video_url,
    }


@router.get("/{video_id}", responses=problems(404), summary="The record of a video")
async def video(request: Request, video_id: VideoId, _: NoQuery) -> VideoDetails:
    """Returns the record of a video, with facts from its file if that is unchanged since indexing."""
    service = service_of(request)

    def read(corpus: Corpus) -> VideoDetails:
        record = record_of(corpus, video_id)
        streams = streams_with_clips(corpus.store, [record])[video_id]
        return VideoDetails(
            **facts_of(service, corpus, record, streams), **_details(service, record, streams)
        )

    return await service.read(service.reads, request, read)


def _details(service: Service, record: VideoRecord, streams: Sequence[str]) -> dict[str, Any]:
    unavailable = None
    try:
        service.folders.open(record).close()
    except ServerError as error:
        unavailable = Problem(code=error.code, message=printable(error.message))
    probed = None if unavailable else service.probe(record)
    picture = probed.picture if probed else None
    return {
        "metadata": dict(record.metadata),
        "words_from": printable(record.words),
        "indexed_streams": [
            StreamOfVideo(
                stream=name,
                title=stream_named(name).title,
                since=None if at is None else datetime.fromtimestamp(at, UTC).isoformat(),
            )
            for name, at in indexed_at(record, streams).items()
        ],
        "shots": None if record.shots is None else list(record.shots),
        "available": unavailable is None,
        "unavailable": unavailable,
        "place": printable(record.path) if service.paths.are_shown else None,
        "content_type": content_type(record.path) if record.kind == "media" else None,
        "frame_rate": picture.rate if picture else None,
        "start_timecode": printable(probed.start_timecode) if probed else "",
        "width": picture.width if picture else None,
        "height": picture.height if picture else None,
        "codec": picture.codec if picture else None,
        "has_audio": probed.has_audio if probed else None,
        "chapters": [
            ChapterBody(start=part.start, end=part.end, title=printable(part.title))
            for part in (probed.chapters if probed else ())
        ],
        "has_texts": any(stream.has_words and not stream.transcript for stream in map(stream_named, streams)),
    }


@router.get("/{video_id}/cues", responses=problems(404), summary="The words of a video, with times")
async def cues(
    request: Request, video_id: VideoId, parameters: Annotated[SpanParameters, Query()]
) -> CuesBody:
    """Returns all spoken passages of a video, or those that overlap [start, end) in seconds."""
    start, end = parameters.start or 0.0, parameters.end

    def read(corpus: Corpus) -> CuesBody:
        record = record_of(corpus, video_id)
        moment = None
        if parameters.start is not None or end is not None:
            moment = _span(record, start, end if end is not None else max(start + 1e-3, _length(record)))
        lines = corpus.words(record, moment)
        return CuesBody(
            video_id=video_id,
            data=[
                CueBody(start=line.start, end=line.end, text=line.text, recognised=line.recognised)
                for line in lines
            ],
        )

    return await read_corpus(request, read)


@router.get("/{video_id}/texts", responses=problems(404), summary="The text on the screen of a video")
async def texts(request: Request, video_id: VideoId, _: NoQuery) -> TextsBody:
    """Returns the text of slides, captions and signs, by stream and start; none if none was read."""

    def read(corpus: Corpus) -> TextsBody:
        by_stream = lines_of(corpus.store, record_of(corpus, video_id), None, spoken=False)
        return TextsBody(
            video_id=video_id,
            data=[
                TextsOfStream(
                    stream=name,
                    title=stream_named(name).title,
                    texts=[
                        CueBody(start=line.start, end=line.end, text=printable(line.text)) for line in lines
                    ],
                )
                for name, lines in by_stream.items()
            ],
        )

    return await read_corpus(request, read)


@router.get(
    "/{video_id}/transcript",
    responses=problems(404)
    | {
        200: {
            "description": "The words",
            "content": {kind.partition(";")[0]: {} for kind in MEDIA_TYPES.values()},
        }
    },
    response_class=Response,
    summary="The words of a video as a file",
)
async def video_transcript(
    request: Request, video_id: VideoId, parameters: Annotated[TranscriptParameters, Query()]
) -> Response:
    """Returns the spoken passages of a video as a subtitle or text file, for download."""

    def read(corpus: Corpus) -> tuple[VideoRecord, bytes]:
        record = record_of(corpus, video_id)
        lines = corpus.words(record, None)
        if not lines:
            raise ServerError(404, "no_words", f"no words of {record.file_name} are indexed")
        return record, transcript(lines, parameters.format)

    record, content = await read_corpus(request, read)
    name = quote(f"{FilePath(record.file_name).stem}.{parameters.format}", safe="")
    headers = {"Content-Disposition": f"attachment; filename*=utf-8''{name}"}
    return Response(content, media_type=MEDIA_TYPES[parameters.format], headers=headers)


def _length(record: VideoRecord) -> float:
    return record.duration if record.duration is not None else LONGEST_SECONDS


def _span(record: VideoRecord, start: float, end: float) -> Moment:
    if end <= start:
        raise ServerError(400, "invalid_span", f"{start:g}-{end:g} is empty or reversed", field="end")
    return Moment(record.video_id, start, end)


def binary(*types: str) -> dict[int | str, dict[str, Any]]:
    """The answers of a file route for OpenAPI, by media type."""
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {
        200: {"description": "The file", "content": dict.fromkeys(types, schema)},
        206: {"description": "A part of the file", "content": dict.fromkeys(types, schema)},
        304: {"description": "Unchanged since the client fetched it"},
    }


@router.get(
    "/{video_id}/file",
    responses=problems(404, 409, 410, 416) | binary("video/*", "audio/*", "application/octet-stream"),
    response_class=Response,
    summary="The video's own file",
)
@router.head("/{video_id}/file", include_in_schema=False)
async def file(request: Request, video_id: VideoId, _: NoQuery) -> Response:
    """Sends the file, or one requested range of it; several ranges are answered with the whole file."""
    service = service_of(request)
    record = await service.record(request, video_id)
    service.downloads.acquire()
    try:
        opened = await service.reads.run(partial(service.folders.open, record), partial(left, request))
    except BaseException:
        service.downloads.release()
        raise
    kind, name, done = content_type(record.path), record.file_name, service.downloads.release
    if isinstance(opened, OpenObject):
        return respond_object(request, opened, media_type=kind, name=name, done=done)
    return respond(request, opened, media_type=kind, name=name, done=done)


@router.get(
    "/{video_id}/thumbnail",
    responses=problems(404, 409, 410, 507) | binary("image/jpeg"),
    response_class=Response,
    summary="A picture of one instant, as JPEG",
)
@router.head("/{video_id}/thumbnail", include_in_schema=False)
async def video_thumbnail(
    request: Request, video_id: VideoId, parameters: Annotated[ThumbnailParameters, Query()]
) -> Response:
    """Sends the picture at `at` seconds, made once and cached."""
    service = service_of(request)
    record = await _readable(service, request, video_id)
    if not record.has_picture:
        raise ServerError(404, "no_picture", f"{record.file_name} has no pictures, only sound")
    if parameters.at > _length(record) + _SLACK_SECONDS:
        raise ServerError(400, "beyond_the_end", record.beyond(parameters.at), field="at")
    at, width = round(parameters.at, 2), -(-parameters.width // 16) * 16
    key = cached_name(record.video_id, "thumbnail", *content_of(record), f"{at:.2f}", str(width)) + ".jpg"
    make = partial(_write, service, record, lambda path, out: service.decoders.draw(path, at, width, out))
    opened = await service.made(service.thumbnails, "thumbnail", key, make)
    name = f"{record.video_id}-{at:.2f}.jpg"
    return respond(request, opened, media_type="image/jpeg", name=name, tag=key[:32])


@router.get(
    "/{video_id}/clip",
    responses=problems(404, 409, 410, 416, 507) | binary("video/mp4", "audio/mp4"),
    response_class=Response,
    summary="A range of a video, cut out as MP4 (.m4a without pictures)",
)
@router.head("/{video_id}/clip", include_in_schema=False)
async def clip(
    request: Request, video_id: VideoId, parameters: Annotated[ClipParameters, Query()]
) -> Response:
    """Cuts [start, end) in seconds, re-encoded to begin and end at exact frames, and caches the file."""
    service = service_of(request)
    record = await _readable(service, request, video_id)
    start, end = _clip_span(record, parameters.start, parameters.end)
    suffix = ".mp4" if record.has_picture else ".m4a"
    facts = "clip", CUT_VERSION, *content_of(record), f"{start:.3f}", f"{end:.3f}"
    key = cached_name(record.video_id, *facts) + suffix
    make = partial(_write, service, record, lambda path, out: service.decoders.cut(path, start, end, out))
    opened = await service.encoded_once("clip", key, make)
    name = f"{FilePath(record.file_name).stem}_{start:.3f}-{end:.3f}{suffix}"
    return respond(request, opened, media_type=content_type(suffix), name=name, tag=key[:32])


async def _readable(service: Service, request: Request, video_id: str) -> VideoRecord:
    """The record of a video. Raises ServerError as `record_of` and `ServedFolders.open` do.

    The file is opened in a thread, because a disk or a store may hang.
    """

    def read(corpus: Corpus) -> VideoRecord:
        record = record_of(corpus, video_id)
        service.folders.open(record).close()
        return record

    return await service.read(service.reads, request, read)


def _clip_span(record: VideoRecord, start: float, end: float) -> tuple[float, float]:
    """The range to cut, rounded to milliseconds and clipped to the video's end. Raises ServerError 400."""
    length = _length(record)
    start, end = round(start, 3), round(min(end, length), 3)
    if start >= length:
        raise ServerError(400, "beyond_the_end", record.beyond(start), field="start")
    _span(record, start, end)
    if end - start > MOST_CLIP_SECONDS:
        raise ServerError(
            400,
            "clip_too_long",
            f"{end - start:g} s is too long for a clip, which may last at most {MOST_CLIP_SECONDS:g} s",
            field="end",
        )
    return start, end


def content_of(record: VideoRecord) -> tuple[str, ...]:
    """Identifies the content of a video's file, for cache keys."""
    return record.path, record.content_hash, str(record.size), str(record.modified_ns)


def _write(
    service: Service, record: VideoRecord, make: Callable[[FilePath, FilePath], None], out: FilePath
) -> None:
    """Write a thumbnail or a clip of a video to `out`."""
    with service.folders.held(record) as path, safe_errors(path, out):
        make(path, out)
