/* A guest in one boot sector that answers keys, for tests of consoles.
 *
 *  - it says "echo up" on COM1 and on the screen;
 *  - a byte that comes on COM1 goes back there as <byte>;
 *  - a key of the keyboard fills the screen with its character, and is told on COM1 as [byte].
 */
.code16
.globl _start
_start:
    ljmp $0, $1f
1:  xor %ax, %ax
    mov %ax, %ds
    mov %ax, %ss
    mov $0x7c00, %sp
    sti
    cld
    mov $0x00e3, %ax                /* COM1: 9600 bit/s, 8 bits, as the BIOS sets it */
    xor %dx, %dx
    int $0x14
    mov $text_up, %si
2:  lodsb
    test %al, %al
    jz next
    call both
    jmp 2b
next:
    mov $0x3fd, %dx                 /* a byte on COM1? */
    in %dx, %al
    test $1, %al
    jz 3f
    mov $0x3f8, %dx
    in %dx, %al
    mov $'<', %bl
    mov $'>', %bh
    call framed
3:  mov $1, %ah                     /* a key? */
    int $0x16
    jz next
    xor %ah, %ah
    int $0x16
    push %ax
    mov $'[', %bl
    mov $']', %bh
    call framed
    pop %ax
    mov $0xb800, %cx
    mov %cx, %es
    xor %di, %di
    mov $0x1f, %ah                  /* white on blue */
    mov $2000, %cx
    rep stosw
    jmp next

framed:                             /* al between bl and bh, on COM1 */
    push %ax
    mov %bl, %al
    call serial
    pop %ax
    call serial
    mov %bh, %al
serial:                             /* al on COM1 */
    push %ax
    mov $0x3fd, %dx
4:  in %dx, %al
    test $0x20, %al
    jz 4b
    pop %ax
    mov $0x3f8, %dx
    out %al, %dx
    ret
both:                               /* al on COM1 and on the screen */
    call serial
    mov $0x0e, %ah
    mov $7, %bx
    int $0x10
    ret

text_up:    .asciz "echo up\r\n"
.org 510
    .word 0xaa55
