/* A zeroing image in one boot sector (16-bit code): sectors 64 to 127 of the second disk are its
 * free space.  It fills them with zeroes, says so on COM1 and powers the machine off.
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
    xor %eax, %eax
    mov $0x7e00, %di
    mov $128, %cx
    rep stosl
next:
    mov $packet, %si
    mov $0x4300, %ax
    mov $0x81, %dl
    int $0x13
    jc off
    incw place
    cmpw $128, place
    jne next
    mov $text, %si
2:  lodsb
    test %al, %al
    jz off
    mov $0x3f8, %dx
    out %al, %dx
    jmp 2b
off:
    mov $0x604, %dx
    mov $0x2000, %ax
    out %ax, %dx
3:  cli
    hlt
    jmp 3b
text:
    .asciz "filled\r\n"
.balign 4
packet:
    .byte 16, 0
    .word 1, 0x7e00, 0
place:
    .quad 64
