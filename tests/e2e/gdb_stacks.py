# For gdb (gdb -batch -p PID -x gdb_stacks.py): prints each stack in which stack_marker is called (see
# tests/workloads/stacks/shapes.h), one JSON object a line, when the process has ended: nobody reads before. Frames are
# physical ones, the marker's caller first: [base name of the mapped file, offset in the file].
import json
import os

import gdb


def quietly(command):
    gdb.execute(command, to_string=True)


def mappings(pid):
    areas = []
    with open(f"/proc/{pid}/maps") as lines:
        for line in lines:
            words = line.split()
            start, end = (int(word, 16) for word in words[0].split("-"))
            name = os.path.basename(words[5]) if len(words) > 5 else "[anon]"
            areas.append((start, end, int(words[2], 16), name))
    return areas


def place(areas, address):
    for start, end, offset, name in areas:
        if start <= address < end:
            return [name, address - start + offset]
    return ["?", address]


def physical_frames(frame):
    frames = []
    while frame is not None:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            frames.append(frame)
        reason = frame.unwind_stop_reason()
        try:
            frame = frame.older()
        except gdb.error as error:
            return frames, str(error)
    return frames, gdb.frame_stop_reason_string(reason)


# Of the function that the frame really is in, not of one that was inlined there. Link-time optimization may leave no
# block: then from the symbol's start to what is near.
def function_bounds(frame):
    function = frame.function()
    try:
        block = frame.block()
    except RuntimeError:
        words = gdb.execute(f"info symbol {frame.pc() - 1}", to_string=True).rsplit(" in section", 1)[0].split(" + ")
        return frame.pc() - 1 - (int(words[1]) if len(words) > 1 else 0), frame.pc() + 256
    while block.superblock is not None and (block.function is None or block.function.symtab != function.symtab
                                            or block.function.linkage_name != function.linkage_name):
        block = block.superblock
    return block.start, block.end


def stack(pid):
    size_bytes = int(gdb.parse_and_eval("$rdi"))
    shape = gdb.parse_and_eval("(const char*)$rsi").string()
    frames, end = physical_frames(gdb.selected_frame())
    areas = mappings(pid)
    bounds = [place(areas, address)[1] for address in function_bounds(frames[1])]
    return {
        "size_bytes": size_bytes,
        "shape": shape,
        "function": bounds,
        "names": [frame.name() for frame in frames[1:]],
        "frames": [place(areas, frame.pc()) for frame in frames[1:]],
        "end": end,
    }


for setting in ("pagination off", "confirm off", "backtrace past-main on", "print thread-events off",
                "print inferior-events off", "debuginfod enabled off"):
    gdb.execute("set " + setting)
quietly("handle all nostop noprint pass")
quietly("break *stack_marker")
process = gdb.selected_inferior()
process_id = process.pid
print(json.dumps({"ready": process_id}), flush=True)
stacks = []
while True:
    quietly("continue")
    if process.pid == 0:
        break
    stacks.append(stack(process_id))
for one in stacks:
    print(json.dumps(one))
