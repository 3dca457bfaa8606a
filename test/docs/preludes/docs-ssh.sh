bothy up
ID=$(bothy create python-3.12-bare)
mkdir -p ~/.ssh src
echo hello >src/file
# OpenSSH takes the home from the list of users, whatever $HOME is.
ssh() { command ssh -F ~/.ssh/config "$@"; }
scp() { command scp -F ~/.ssh/config "$@"; }
