echo "a,b" >data.csv
