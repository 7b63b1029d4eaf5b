/* A guest in one boot sector (16-bit code) that fills its disk with a pattern and says what it wrote.
 *
 *  - it says "up" on COM1, and goes on from the number in sector 1;
 *  - each round adds one to the number N, writes a sector full of N at sector 64 + (N & 4095), then one
 *    to sector 1, says N in hexadecimal on COM1 when both were written, and rests for four ticks of the
 *    clock (18 a second), for its node has other things to do;
 *  - it says "!" and tries again when a sector was not written;
 *  - when the ACPI power button is pressed it says "off" and powers the machine off.
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
    cld
    sti
    mov $text_up, %si
    call print
    mov $0x42, %ah                  /* go on from what is there */
    call disk
    mov $0x602, %dx                 /* enable the power button */
    in %dx, %ax
    or $0x100, %ax
    out %ax, %dx
next:
    mov $0x600, %dx
    in %dx, %ax
    test $0x100, %ax
    jnz off
    mov 0x7e00, %eax
    inc %eax
    mov $0x7e00, %di
    mov $128, %cx
    rep stosl                       /* the whole sector says it */
    and $4095, %ax
    add $64, %ax
    call write
    mov $1, %ax
    call write
    mov 0x7e00, %ebx
    mov $8, %cx
2:  rol $4, %ebx
    mov %bl, %al
    and $15, %al
    add $'0', %al
    cmp $'9', %al
    jbe 3f
    add $('a' - '9' - 1), %al
3:  call put
    loop 2b
    mov $text_end, %si
    call print
    mov $4, %cx
8:  hlt
    loop 8b
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
4:  cli
    hlt
    jmp 4b

write:                              /* the sector in ax */
    mov %ax, place
5:  mov $0x4300, %ax
    call disk
    jnc 6f
    mov $text_error, %si
    call print
    jmp 5b
6:  ret
disk:                               /* extended read or write as said by ah */
    mov $0x80, %dl
    mov $packet, %si
    int $0x13
    ret
print:                              /* text at si up to a zero byte */
    lodsb
    test %al, %al
    jz 6b
    call put
    jmp print
put:                                /* the character in al */
    mov %al, %ah
    mov $0x3fd, %dx
7:  in %dx, %al
    test $0x20, %al
    jz 7b
    mov $0x3f8, %dx
    mov %ah, %al
    out %al, %dx
    ret
text_up:
    .asciz "up\r\n"
text_error:
    .asciz "!"
text_off:
    .ascii "off"
text_end:
    .asciz "\r\n"
.balign 4
packet:
    .byte 16, 0
    .word 1, 0x7e00, 0
place:
    .quad 1
