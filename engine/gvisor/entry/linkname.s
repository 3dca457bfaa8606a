// This file lets functions without a body be those of other packages (go:linkname).
