# The interpreter of a program of system calls, see program in launcher_amd64.go. It keeps what
# it knows below where its stack begins (rbp): zero, the address of what the last call
# returned, the arguments and the environment of the process, and the number of the error.
#
# Each call is nine words: its number, five arguments, and where to go on if it returned
# zero, more, or less. An argument below zero says which of what is known it is.

	.intel_syntax noprefix
	.text
	mov	rbp, rsp
	pop	rcx			# argc
	mov	rdi, rsp		# argv
	lea	rsi, [rsp+rcx*8+8]	# envp
	xor	eax, eax
	mov	rsp, rbp
	push	rax			# -1: what the last call returned
	push	rsp			# -2: its address
	push	rdi			# -3
	push	rsi			# -4
	push	rax			# -5: what the last call returned, with its sign changed
	lea	rbx, [rip+calls]
next:
	push	1
	pop	r15
argument:
	movsxd	rax, dword ptr [rbx+r15*4]
	test	eax, eax
	jns	known
	mov	rax, [rbp+rax*8]
known:
	push	rax
	inc	r15d
	cmp	r15d, 6
	jne	argument
	pop	r8
	pop	r10
	pop	rdx
	pop	rsi
	pop	rdi
	mov	eax, [rbx]
	syscall
	mov	[rbp-8], rax
	mov	ecx, eax
	neg	ecx
	mov	[rbp-40], rcx
	test	eax, eax
	mov	eax, [rbx+24]
	je	go
	mov	eax, [rbx+28]
	jg	go
	mov	eax, [rbx+32]
go:
	lea	rbx, [rip+calls]
	add	rbx, rax
	jmp	next
calls:
