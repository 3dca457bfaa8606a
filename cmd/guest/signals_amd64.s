#include "textflag.h"

// func caught()
TEXT ·caught(SB), NOSPLIT|NOFRAME, $0-0
	RET

// func restore()
TEXT ·restore(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ $15, AX // rt_sigreturn
	SYSCALL
	INT $3

// func handlers() (caught, restore uintptr)
TEXT ·handlers(SB), NOSPLIT, $0-16
	LEAQ ·caught(SB), AX
	MOVQ AX, caught+0(FP)
	LEAQ ·restore(SB), AX
	MOVQ AX, restore+8(FP)
	RET
