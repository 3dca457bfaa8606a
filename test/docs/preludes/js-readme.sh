mkdir project && echo "a file" >project/file.txt
