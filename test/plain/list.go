package main

// list has the tests that fail with the plain library.
var list = []exception{
	{name: name{"engine/gvisor", "TestKilledKernelSaysSo"}, Why: "a signal sent to a sentry on the host is passed on to process 1 and kills it"},
	{name: name{"engine/gvisor", "TestFilesThatDoNotFit"}, Why: "files of an overlay are not limited"},
	{name: name{"test/e2e", "TestAPlainLinux"}, Why: "/proc/sys lacks some of Linux's files"},
	{name: name{"test/e2e", "TestProgramsFindALinux"}, Why: "terminals, new network namespaces and /proc differ from Linux, and root cannot attach to a user's process"},
	{name: name{"test/e2e", "TestAttributesOfFiles"}, Why: "files of an image cannot have extended attributes"},
	{name: name{"test/e2e", "TestTooManyFiles"}, Why: "files of an overlay are not limited"},
	{name: name{"test/e2e", "TestHoards/link"}, Why: "hard links are not limited"},
	{name: name{"test/e2e", "TestLifeCycleOnEveryEngine/gvisor"}, Why: "copies have the same boot_id"},
	{name: name{"test/e2e", "TestFreezingABusySandbox"}, Why: "a kernel that is frozen during a context switch may end", Sometimes: true},
	{name: name{"test/e2e", "TestWhiteoutsAreFiles"}, Why: "files in memory are not limited"},
	{name: name{"test/e2e", "TestForkBombs/shell"}, Why: "the idle neighbour is frozen and may end, as above", Sometimes: true},
	{name: name{"test/e2e", "TestForkBombs/python"}, Why: "the idle neighbour is frozen and may end, as above", Sometimes: true},
	{name: name{"test/e2e", "TestMemoryBombs"}, Why: "a process that allocates faster than the limit is checked is not slowed down", Sometimes: true},
}
