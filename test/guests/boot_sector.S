/* A complete guest in one boot sector (16-bit code), for QEMU's "pc" and "q35" machines.
 *
 *  - on COM1 and on the screen it says that it is up and, once it has counted its starts in the
 *    first word of sector 1, which start this is;
 *  - then it prints a line with a decimal counter about twice a second: the counter lives in
 *    memory, so it goes on after a migration and starts again after a restart;
 *  - when the ACPI power button is pressed it says so and powers the machine off;
 *  - with a work count other than 0 (patched in) it first does that much floating point work and
 *    says when it is done: fast on real hardware, slow where the processor is emulated.
 *
 * Both machines have the ACPI registers at 0x600 once SeaBIOS is done.
 */
.code16
.globl _start
_start:
    ljmp $0, $1f
work_count:
    .long 0                         /* at offset 5 */
1:  xor %ax, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov $0x7c00, %sp
    mov %dl, drive
    sti
    mov $text_up, %si
    call print
    mov work_count, %ecx
    jecxz 3f
    fninit
    fldz
    fld1
2:  fadd %st(0), %st(1)
    fstl 0x7e00
    dec %ecx
    jnz 2b
    mov $text_done, %si
    call print
3:  mov $0x42, %ah                  /* count this start in sector 1, read to 0x7e00 */
    call disk
    jc 4f
    incw 0x7e00
    mov $0x4300, %ax
    call disk
    jc 4f
    mov $text_start, %si
    mov 0x7e00, %ax
    call print_line
4:  mov $0x602, %dx                 /* enable the power button */
    in %dx, %ax
    or $0x100, %ax
    out %ax, %dx
next:
    hlt
    mov $0x600, %dx
    in %dx, %ax
    cmp $0xffff, %ax                /* no ACPI */
    je 5f
    test $0x100, %ax
    jnz off
5:  mov 0x46c, %ax                  /* timer ticks, 18.2 a second */
    sub last_tick, %ax
    cmp $8, %ax
    jb next
    add %ax, last_tick
    incw beats
    mov beats, %ax
    mov $text_beat, %si
    call print_line
    jmp next
off:
    mov $0x600, %dx
    mov $0x100, %ax
    out %ax, %dx
    mov $text_off, %si
    call print
    mov $0x604, %dx
    mov $0x2000, %ax
    out %ax, %dx
6:  cli
    hlt
    jmp 6b

disk:                               /* extended read or write as said by ah */
    mov drive, %dl
    mov $address_packet, %si
    int $0x13
    ret
print_line:                         /* text at si, number in ax, end of line */
    push %ax
    call print
    pop %ax
    call print_number
    mov $text_end, %si
print:                              /* text at si up to a zero byte */
    lodsb
    test %al, %al
    jz 8f
    call print_char
    jmp print
print_number:                       /* ax, decimal */
    xor %dx, %dx
    mov $10, %bx
    div %bx
    push %dx
    test %ax, %ax
    jz 7f
    call print_number
7:  pop %ax
    add $'0', %al
print_char:
    push %dx
    mov $0x3f8, %dx
    out %al, %dx
    mov $0x0e, %ah
    mov $7, %bx
    int $0x10
    pop %dx
8:  ret

text_up:    .asciz "guest up\r\n"
text_done:  .asciz "work done\r\n"
text_start: .asciz "start "
text_beat:  .asciz "beat "
text_off:   .ascii "power off"
text_end:   .asciz "\r\n"
drive:      .byte 0
last_tick:  .word 0
beats:      .word 0
.align 4
address_packet:
    .byte 16, 0
    .word 1                         /* one sector */
    .word 0x7e00, 0
    .quad 1                         /* sector 1 */
.org 510
    .word 0xaa55
