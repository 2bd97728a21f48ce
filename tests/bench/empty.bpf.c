/* The floor that memtrace is compared with: programs that do nothing, attached where memtrace attaches its own. */
#include "kernel_types.h"

char LICENSE[] SEC("license") = "GPL";

SEC("uprobe")
int on_call(struct pt_regs* ctx) {
    return 0;
}

SEC("uprobe")
int on_return(struct pt_regs* ctx) {
    return 0;
}

SEC("uprobe")
int on_call_or_return(struct pt_regs* ctx) {
    return 0;
}
