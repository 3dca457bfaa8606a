package bothy

// Bounds of one wait.
const (
	DefaultWaitSeconds = 60
	MaxWaitSeconds     = 600
	// MaxWaitText bounds the text or expression that is looked for.
	MaxWaitText = 4096
)

// WaitRequest says what to wait for in a sandbox: one of Port, URL and Log, or, without these, the
// end of the process PID.
type WaitRequest struct {
	// Port waits until a server on the sandbox's loopback accepts connections.
	Port int `json:"port,omitempty"`
	// URL waits until a GET request from inside is answered with Status, or, if that is 0,
	// with any from 200 to 399. Redirects are not followed, and certificates not checked.
	URL    string `json:"url,omitempty"`
	Status int    `json:"status,omitempty"`
	// Log waits for a line that contains this text, or, with Regex, matches it: of the output
	// of PID, or of the file Path.
	Log   string `json:"log,omitempty"`
	Regex bool   `json:"regex,omitempty"`
	Path  string `json:"path,omitempty"`
	// User reads the file.
	User string `json:"user,omitempty"`
	// PID ends the wait with an error when this process ends before what is waited for.
	PID            int     `json:"pid,omitempty"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
}

// WaitResult says what came.
type WaitResult struct {
	// TimedOut is true if the time was up first. All else is then empty.
	TimedOut bool `json:"timed_out"`
	// Line is the line that was found, shortened if it is very long.
	Line string `json:"line,omitempty"`
	// Status is that of the URL's answer.
	Status int `json:"status,omitempty"`
	// ExitCode is that of the process, if it was started through the API.
	ExitCode   *int  `json:"exit_code,omitempty"`
	DurationMS int64 `json:"duration_ms"`
}
