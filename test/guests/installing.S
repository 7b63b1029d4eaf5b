/* An installation image in one boot sector (16-bit code): it copies the first sector of the package,
 * which is on the third disk, to the second disk, which is the instance's.  It tells on the third
 * disk that it works, waits for more than a second, tells its end there and powers the machine off.
 *
 * The ACPI registers of "pc" and "q35" are at 0x600 once SeaBIOS is done.
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
    mov $working, %si           /* "progress ..." in sector 0 of the third disk */
    xor %bx, %bx
    call tell
    mov $output, %si            /* the output in sector 1 */
    mov $1, %bx
    call tell
    mov $0x4200, %ax            /* the first sector of the package */
    mov $0x82, %dl
    movw $2048, place
    mov $packet, %si
    int $0x13
    jc off
    mov $0x4300, %ax
    mov $0x81, %dl
    movw $0, place
    mov $packet, %si
    int $0x13
    jc off
    mov $0x8600, %ax            /* wait 1.57 seconds */
    mov $24, %cx
    xor %dx, %dx
    int $0x15
    mov $ended, %si
    xor %bx, %bx
    call tell
off:
    mov $0x604, %dx
    mov $0x2000, %ax
    out %ax, %dx
3:  cli
    hlt
    jmp 3b

tell:                           /* writes the text at %si to sector %bx of the third disk */
    mov $0x7e00, %di
    mov $256, %cx
    xor %ax, %ax
    rep stosw
    mov $0x7e00, %di
4:  lodsb
    stosb
    test %al, %al
    jnz 4b
    mov %bx, place
    mov $packet, %si
    mov $0x4300, %ax
    mov $0x82, %dl
    int $0x13
    ret
working:
    .asciz "progress half way\n"
output:
    .asciz "copying\nthe system\n"
ended:
    .asciz "exit 0\n"
.balign 4
packet:
    .byte 16, 0
    .word 1, 0x7e00, 0
place:
    .quad 0
