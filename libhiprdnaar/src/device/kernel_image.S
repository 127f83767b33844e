// SPDX-License-Identifier: Apache-2.0
// Puts the file RDNAAR_KERNEL_IMAGE into the section RDNAAR_KERNEL_SECTION. On pages of its own: a
// runtime may map code objects from there.
    .section RDNAAR_KERNEL_SECTION, "a", @progbits
    .balign 4096
    .globl rdnaar_kernel_image_start
    .hidden rdnaar_kernel_image_start
    .type rdnaar_kernel_image_start, @object
rdnaar_kernel_image_start:
    .incbin RDNAAR_KERNEL_IMAGE
    .size rdnaar_kernel_image_start, . - rdnaar_kernel_image_start
    .section .note.GNU-stack, "", @progbits
