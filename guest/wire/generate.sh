#!/bin/sh
# Generates the Go code of the guest's protocol from the .proto files next to it.
# Needs protoc; the plugins are built at pinned versions into a scratch folder.
set -eu
cd "$(dirname "$0")/../.."
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN="$bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
GOBIN="$bin" go install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.21.1
PATH="$bin:$PATH" protoc -I . \
	--go_out=. --go_opt=paths=source_relative \
	--connect-go_out=. --connect-go_opt=paths=source_relative,package_suffix,simple=true \
	guest/wire/processpb/process.proto \
	guest/wire/filesystempb/filesystem.proto \
	guest/wire/guestpb/guest.proto
