#include "textflag.h"

// func forkRow(number, op, row, n, child, m uintptr) (r uintptr)
//
// The stack is the child's and the parent's at once, so nothing is written to it
// between the call that makes the child and the parent's return.
TEXT ·forkRow(SB), NOSPLIT, $0-56
	MOVQ number+0(FP), AX
	MOVQ op+8(FP), DI
	MOVQ row+16(FP), SI
	MOVQ n+24(FP), DX
	MOVQ child+32(FP), R12
	MOVQ m+40(FP), R13
	XORQ R10, R10
	XORQ R8, R8
	SYSCALL
	TESTQ AX, AX
	JZ   begun
	MOVQ AX, r+48(FP)
	RET

begun:
	MOVQ number+0(FP), AX
	MOVQ R12, SI
	MOVQ R13, DX
	SYSCALL
	// Only a row that failed comes back. The parent finds the error behind it.
	SHLQ $6, R13
	ADDQ R13, R12
	MOVQ AX, 56(R12)
	MOVL $231, AX // exit_group
	MOVL $127, DI
	SYSCALL
	INT  $3
