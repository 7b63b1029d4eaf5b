/* A guest in one boot sector (16-bit code) that writes one counter to two disks, again and again.
 *
 *  - it goes on from the counter in sector 1 of its first disk, and says "up" on COM1;
 *  - each round adds one and writes the counter to sector 1 of the first disk, then to sector 1 of
 *    the second one.  So at any instant the first is the same as the second, or one more;
 *  - each round it also fills a sector with the counter, at sector 64 + (counter & 7) of both.
 */
.code16
.globl _start
_start:
    ljmp $0, $1f
1:  xor %ax, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov $0x7c00, %sp
    sti
    mov $0x42, %ah                  /* go on from what is there */
    mov $0x80, %dl
    mov $packet, %si
    int $0x13
    mov $text, %si
2:  lodsb
    test %al, %al
    jz next
    mov $0x3f8, %dx
    out %al, %dx
    jmp 2b
next:
    incl 0x7e00
    mov 0x7e00, %eax
    mov $0x7e00, %di
    mov $128, %cx
    rep stosl                       /* the whole sector says it */
    movw $1, place
    call both
    mov 0x7e00, %ax
    and $7, %ax
    add $64, %ax
    mov %ax, place
    call both
    jmp next
both:
    mov $0x80, %dl
    call write
    mov $0x81, %dl
write:
    mov $packet, %si
    mov $0x4300, %ax
    int $0x13
    ret
text:
    .asciz "up\r\n"
.balign 4
packet:
    .byte 16, 0
    .word 1, 0x7e00, 0
place:
    .quad 1
