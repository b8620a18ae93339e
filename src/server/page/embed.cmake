# cmake -DINPUT=file -DOUTPUT=file.cc -DSYMBOL=kName -P embed.cmake: a file as a C array.
file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
string(REGEX REPLACE "(('\\\\x..',)('\\\\x..',)('\\\\x..',)('\\\\x..',)('\\\\x..',)('\\\\x..',)('\\\\x..',)('\\\\x..',))" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "namespace voxrt::server {\nextern const char ${SYMBOL}[];\nextern const unsigned long ${SYMBOL}Size;\n"
  "const char ${SYMBOL}[] = {${bytes}0};\nconst unsigned long ${SYMBOL}Size = ${size};\n}\n")
